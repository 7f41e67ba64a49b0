// Jinja2's urlize: URLs and mail addresses in a text become links.
#include <oniguruma.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "base/check.h"
#include "text/chat/builtin_tables.h"
#include "text/chat/text_search.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

// A compiled pattern, matched against whole words. Thread-safe after construction.
class Pattern {
 public:
  explicit Pattern(std::string_view source) {
    static std::once_flag initialised;
    std::call_once(initialised, [] {
      OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
      onig_initialize(encodings, 1);
    });
    const auto* begin = reinterpret_cast<const OnigUChar*>(source.data());
    OnigErrorInfo info;
    CHECK(onig_new(&regex_, begin, begin + source.size(), ONIG_OPTION_IGNORECASE, ONIG_ENCODING_UTF8, ONIG_SYNTAX_PERL,
                   &info) == ONIG_NORMAL);
  }
  bool Matches(std::string_view word) const {
    const auto* begin = reinterpret_cast<const OnigUChar*>(word.data());
    const auto* end = begin + word.size();
    return onig_match(regex_, begin, end, begin, nullptr, ONIG_OPTION_NONE) >= 0;
  }

 private:
  regex_t* regex_ = nullptr;  // lives as long as the program
};

bool IsUrl(std::string_view word) {
  static const Pattern pattern(
      "(?:(?:https?://|www\\.)(?:(?:[\\w%-]+\\.)+)?(?:[a-z]{2,63}|xn--[\\w%]{2,59})"
      "|(?:[\\w%-]{2,63}\\.)+(?:com|net|int|edu|gov|org|info|mil)"
      "|https?://(?:\\d{1,3}(?:\\.\\d{1,3}){3}|\\[(?:[\\da-f]{0,4}:){2}(?:[\\da-f]{0,4}:?){1,6}\\]))"
      "(?::\\d{1,5})?(?:[/?#]\\S*)?\\z");
  // The longest URL that anyone types; longer words would only cost time.
  constexpr size_t kMaxUrlBytes = 8192;
  return word.size() <= kMaxUrlBytes && pattern.Matches(word);
}

bool IsMail(std::string_view word) {
  static const Pattern pattern("\\S+@\\w[\\w.-]*\\.\\w+\\z");
  constexpr size_t kMaxMailBytes = 1024;
  return word.size() <= kMaxMailBytes && pattern.Matches(word);
}

size_t CountOf(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t i = FindFirst(text, part); i != std::string_view::npos; i = FindFirst(text, part, i + part.size()))
    ++count;
  return count;
}

// A word as opening punctuation, what may be a link, closing punctuation.
struct Word {
  std::string_view head;
  std::string middle, tail;
};

Word TakeApart(std::string_view word) {
  Word parts;
  size_t head = 0;
  while (head < word.size()) {
    if (word[head] == '(' || word[head] == '<') {
      ++head;
    } else if (word.substr(head).starts_with("&lt;")) {
      head += 4;
    } else {
      break;
    }
  }
  parts.head = word.substr(0, head);
  std::string_view middle = word.substr(head);
  size_t end = middle.size();
  while (end > 0) {
    const std::string_view kept = middle.substr(0, end);
    if (std::string_view(")>.,\n").find(kept.back()) != std::string_view::npos) {
      --end;
    } else if (kept.ends_with("&gt;")) {
      end -= 4;
    } else {
      break;
    }
  }
  parts.middle = middle.substr(0, end);
  parts.tail = middle.substr(end);
  // Closing brackets that belong to opening ones inside go back.
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}};
  for (const auto& [open, close] : kPairs) {
    const size_t opened = CountOf(parts.middle, open);
    if (opened <= CountOf(parts.middle, close)) continue;
    size_t taken = 0;
    for (size_t i = std::min(opened, CountOf(parts.tail, close)); i > 0; --i) {
      taken = parts.tail.find(close, taken) + close.size();
    }
    parts.middle += parts.tail.substr(0, taken);
    parts.tail.erase(0, taken);
  }
  return parts;
}

std::string Link(const std::string& middle, const LinkStyle& style) {
  auto trimmed = [&style](const std::string& text) {
    if (style.trim_limit < 0 || CountCharacters(text) <= style.trim_limit) return text;
    return text.substr(0, ByteOffset(text, style.trim_limit)) + "...";
  };
  if (IsUrl(middle)) {
    const bool has_scheme = middle.starts_with("https://") || middle.starts_with("http://");
    return "<a href=\"" + (has_scheme ? "" : std::string("https://")) + middle + "\"" + style.rel + style.target + ">" +
           trimmed(middle) + "</a>";
  }
  if (middle.starts_with("mailto:") && IsMail(std::string_view(middle).substr(7))) {
    return "<a href=\"" + middle + "\">" + middle.substr(7) + "</a>";
  }
  const bool may_be_mail =
      middle.find('@') != std::string::npos && !middle.starts_with("www.") && middle.find(':') == std::string::npos;
  if (may_be_mail && IsMail(middle)) return "<a href=\"mailto:" + middle + "\">" + middle + "</a>";
  std::string link = middle;
  for (const std::string& scheme : style.schemes) {
    if (may_be_mail || link == scheme || !link.starts_with(scheme)) continue;
    link = "<a href=\"" + link + "\"" + style.rel + style.target + ">" + link + "</a>";
  }
  return link;
}

}  // namespace

std::string LinkUrls(std::string_view escaped, const LinkStyle& style) {
  std::string out;
  while (!escaped.empty()) {
    const std::string_view after_space = StripLeft(escaped, IsSpace);
    out += escaped.substr(0, escaped.size() - after_space.size());
    const std::string_view after_word = StripLeft(after_space, [](uint32_t c) { return !IsSpace(c); });
    const Word word = TakeApart(after_space.substr(0, after_space.size() - after_word.size()));
    out += word.head;
    out += Link(word.middle, style);
    out += word.tail;
    escaped = after_word;
  }
  return out;
}

}  // namespace nunspark::text::jinja
