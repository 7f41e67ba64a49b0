#include "text/tokenizer/normalizer.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

constexpr size_t kPrependBytesMax = 64 * 1024;

bool IsSpaceAt(std::string_view text, size_t at, uint32_t& bytes) {
  return UnicodeTable::Get().In(DecodeValidUtf8(text.data() + at, bytes), kWhiteSpace);
}

std::string_view TrimLeft(std::string_view text) {
  uint32_t bytes = 0;
  while (!text.empty() && IsSpaceAt(text, 0, bytes)) text.remove_prefix(bytes);
  return text;
}

std::string_view TrimRight(std::string_view text) {
  while (!text.empty()) {
    size_t at = text.size() - 1;
    while (IsUtf8Continuation(text[at])) --at;
    uint32_t bytes = 0;
    if (!IsSpaceAt(text, at, bytes)) break;
    text = text.substr(0, at);
  }
  return text;
}

// Where origins end once `match`, which begins before `origin_end`, has become `content` at `begin` of the output. The
// reference counts all of the content as the match's last character.
uint32_t OriginAfter(Span match, std::string_view text, uint32_t origin_end, std::string_view content, size_t begin) {
  size_t last = match.end;
  while (last > match.begin && IsUtf8Continuation(text[--last])) {
  }
  if (last < origin_end && !content.empty()) {
    size_t content_last = content.size();
    while (content_last > 0 && IsUtf8Continuation(content[--content_last])) {
    }
    return static_cast<uint32_t>(begin + content_last + 1);
  }
  return static_cast<uint32_t>(begin);  // what stood before it, if anything
}

}  // namespace

Result<Normalizer> Normalizer::FromJson(const JsonSection& section) {
  Normalizer normalizer;
  RETURN_IF_ERROR(normalizer.AppendSteps(section, 0));
  return normalizer;
}

Normalizer Normalizer::FromSentencePiece(std::shared_ptr<const SpmNormalizer> spm) {
  Normalizer normalizer;
  normalizer.steps_.emplace_back(SentencePiece{std::move(spm)});
  return normalizer;
}

Status Normalizer::AppendSteps(const JsonSection& section, int depth) {
  if (depth > kStepDepthMax || steps_.size() > kStepsMax) return section.Malformed("too many steps");
  ASSIGN_OR_RETURN(const std::string type, section.String("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> parts, section.Array("normalizers", kStepsMax));
    for (const JsonSection& part : parts) RETURN_IF_ERROR(AppendSteps(part, depth + 1));
    return Status();
  }
  if (type == "NFC") {
    steps_.emplace_back(NormalForm::kNfc);
  } else if (type == "NFD") {
    steps_.emplace_back(NormalForm::kNfd);
  } else if (type == "NFKC") {
    steps_.emplace_back(NormalForm::kNfkc);
  } else if (type == "NFKD") {
    steps_.emplace_back(NormalForm::kNfkd);
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(std::string prefix, section.String("prepend"));
    if (prefix.size() > kPrependBytesMax) return section.Malformed("prepend: the text is too long");
    steps_.emplace_back(Prepend{std::move(prefix)});
  } else if (type == "Replace") {
    ASSIGN_OR_RETURN(const JsonSection pattern_section, section.Required("pattern"));
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(pattern_section));
    ASSIGN_OR_RETURN(std::string content, section.String("content"));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, section.BoolOr("strip_left", true));
    ASSIGN_OR_RETURN(const bool right, section.BoolOr("strip_right", true));
    steps_.emplace_back(Strip{left, right});
  } else if (type == "Precompiled") {
    ASSIGN_OR_RETURN(const std::string encoded, section.String("precompiled_charsmap"));
    const std::optional<std::string> blob = DecodeBase64(encoded);
    if (!blob.has_value()) return section.Malformed("precompiled_charsmap: expected base64, found other text");
    ASSIGN_OR_RETURN(Charsmap map, Charsmap::Parse(*blob, section.where() + ".precompiled_charsmap"));
    steps_.emplace_back(Precompiled{std::make_shared<const Charsmap>(std::move(map))});
  } else {
    return section.Unsupported(fmt::format("this build does not know the normalizer '{}'", type));
  }
  return Status();
}

int64_t Normalizer::memory_bytes() const {
  int64_t bytes = 0;
  for (const Step& step : steps_) {
    if (const auto* precompiled = std::get_if<Precompiled>(&step)) bytes += precompiled->map->memory_bytes();
    if (const auto* spm = std::get_if<SentencePiece>(&step)) bytes += spm->normalizer->memory_bytes();
  }
  return bytes;
}

Result<Normalizer::Normalized> Normalizer::Run(std::string_view text, WorkLimit& work, std::string& storage) const {
  uint32_t origin_end = 1;
  std::string next;
  for (const Step& step : steps_) {
    next.clear();
    ASSIGN_OR_RETURN(const bool changed,
                     std::visit([&](const auto& chosen) { return Apply(chosen, text, next, origin_end, work); }, step));
    if (next.size() > kTextBytesMax) {
      return ResourceExhaustedError(fmt::format("the normal form of the text is longer than {} bytes", kTextBytesMax));
    }
    if (!changed) continue;
    std::swap(storage, next);
    text = storage;
  }
  return Normalized{text, origin_end};
}

Result<bool> Normalizer::Apply(const NormalForm& step, std::string_view text, std::string& out, uint32_t&, WorkLimit&) {
  return Normalize(step, text, out);
}

Result<bool> Normalizer::Apply(const Prepend& step, std::string_view text, std::string& out, uint32_t& origin_end,
                               WorkLimit& work) {
  if (text.empty()) return false;
  RETURN_IF_ERROR(work.Grow(0, step.text.size()));
  out.reserve(step.text.size() + text.size());
  out += step.text;
  out += text;
  if (origin_end > 0) origin_end += static_cast<uint32_t>(step.text.size());
  return true;
}

Result<bool> Normalizer::Apply(const Replace& step, std::string_view text, std::string& out, uint32_t& origin_end,
                               WorkLimit& work) {
  std::vector<Span> matches;
  RETURN_IF_ERROR(step.pattern.FindMatches(text, {0, static_cast<uint32_t>(text.size())}, work, matches));
  if (matches.empty()) return false;
  size_t removed = 0;
  for (const Span& match : matches) removed += match.end - match.begin;
  const size_t added = matches.size() * step.content.size();
  RETURN_IF_ERROR(work.Grow(removed, added));
  out.reserve(text.size() - removed + added);
  size_t at = 0;
  uint32_t new_origin_end = 0;
  for (const Span& match : matches) {
    out.append(text, at, match.begin - at);
    if (match.begin < origin_end) new_origin_end = OriginAfter(match, text, origin_end, step.content, out.size());
    out += step.content;
    at = match.end;
    if (at < origin_end) new_origin_end = static_cast<uint32_t>(out.size() + (origin_end - at));
  }
  out.append(text, at, text.size() - at);
  if (matches[0].begin < origin_end) origin_end = new_origin_end;
  return true;
}

Result<bool> Normalizer::Apply(const Strip& step, std::string_view text, std::string& out, uint32_t& origin_end,
                               WorkLimit&) {
  std::string_view stripped = text;
  if (step.left) stripped = TrimLeft(stripped);
  const uint32_t removed = static_cast<uint32_t>(text.size() - stripped.size());
  if (step.right) stripped = TrimRight(stripped);
  if (stripped.size() == text.size()) return false;
  out = stripped;
  origin_end -= std::min(origin_end, removed);
  return true;
}

Result<bool> Normalizer::Apply(const Lowercase&, std::string_view text, std::string& out, uint32_t& origin_end,
                               WorkLimit&) {
  out.reserve(text.size());
  const size_t origin_last = origin_end > 0 ? origin_end - 1 : text.size();
  for (size_t at = 0; at < text.size();) {
    if (at == origin_last) origin_end = static_cast<uint32_t>(out.size() + 1);
    uint32_t bytes = 0;
    AppendLowercase(DecodeValidUtf8(text.data() + at, bytes), out);
    at += bytes;
  }
  return true;
}

Result<bool> Normalizer::Apply(const Precompiled& step, std::string_view text, std::string& out, uint32_t&,
                               WorkLimit& work) {
  return step.map->RewriteGraphemes(text, work, out);
}

Result<bool> Normalizer::Apply(const SentencePiece& step, std::string_view text, std::string& out, uint32_t&,
                               WorkLimit& work) {
  RETURN_IF_ERROR(step.normalizer->Run(text, work, out));
  return true;
}

}  // namespace nunspark::text
