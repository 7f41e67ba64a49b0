#include "text/tokenizer/normalizer.h"

#include <fmt/format.h>

#include "base/check.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

constexpr int kDepthMax = 16;
constexpr size_t kStepsMax = 256;
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
  if (depth > kDepthMax || steps_.size() > kStepsMax) return section.Malformed("too many steps");
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

uint32_t Normalizer::PrefixBytes() const {
  size_t bytes = 0;
  for (const Step& step : steps_) {
    if (const auto* prepend = std::get_if<Prepend>(&step)) bytes += prepend->text.size();
  }
  return static_cast<uint32_t>(bytes);
}

int64_t Normalizer::memory_bytes() const {
  int64_t bytes = 0;
  for (const Step& step : steps_) {
    if (const auto* precompiled = std::get_if<Precompiled>(&step)) bytes += precompiled->map->memory_bytes();
    if (const auto* spm = std::get_if<SentencePiece>(&step)) bytes += spm->normalizer->memory_bytes();
  }
  return bytes;
}

Result<Normalizer::Normalized> Normalizer::Run(std::string_view text, std::string& storage) const {
  bool keeps_front = true;
  std::string next;
  for (const Step& step : steps_) {
    next.clear();
    ASSIGN_OR_RETURN(const Change change,
                     std::visit([&](const auto& chosen) { return Apply(chosen, text, next); }, step));
    if (next.size() > kTextBytesMax) {
      return ResourceExhaustedError(fmt::format("the normal form of the text is longer than {} bytes", kTextBytesMax));
    }
    if (change == Change::kNone) continue;
    if (change == Change::kTextAndFront) keeps_front = false;
    std::swap(storage, next);
    text = storage;
  }
  return Normalized{text, keeps_front};
}

Result<Normalizer::Change> Normalizer::Apply(const NormalForm& step, std::string_view text, std::string& out) {
  return Normalize(step, text, out) ? Change::kText : Change::kNone;
}

Result<Normalizer::Change> Normalizer::Apply(const Prepend& step, std::string_view text, std::string& out) {
  if (text.empty()) return Change::kNone;
  out.reserve(step.text.size() + text.size());
  out += step.text;
  out += text;
  return Change::kText;
}

Result<Normalizer::Change> Normalizer::Apply(const Replace& step, std::string_view text, std::string& out) {
  std::vector<Span> matches;
  RETURN_IF_ERROR(step.pattern.FindMatches(text, {0, static_cast<uint32_t>(text.size())}, matches));
  if (matches.empty()) return Change::kNone;
  if (text.size() + matches.size() * step.content.size() > 2 * kTextBytesMax) {
    return ResourceExhaustedError(fmt::format("the normal form of the text is longer than {} bytes", kTextBytesMax));
  }
  out.reserve(text.size() + matches.size() * step.content.size());
  size_t at = 0;
  for (const Span& match : matches) {
    out.append(text, at, match.begin - at);
    out += step.content;
    at = match.end;
  }
  out.append(text, at, text.size() - at);
  const bool removes_front = matches[0].begin == 0 && matches[0].end > 0 && step.content.empty();
  return removes_front ? Change::kTextAndFront : Change::kText;
}

Result<Normalizer::Change> Normalizer::Apply(const Strip& step, std::string_view text, std::string& out) {
  std::string_view stripped = text;
  if (step.left) stripped = TrimLeft(stripped);
  const bool removes_front = stripped.size() != text.size();
  if (step.right) stripped = TrimRight(stripped);
  if (stripped.size() == text.size()) return Change::kNone;
  out = stripped;
  return removes_front ? Change::kTextAndFront : Change::kText;
}

Result<Normalizer::Change> Normalizer::Apply(const Lowercase&, std::string_view text, std::string& out) {
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t bytes = 0;
    AppendLowercase(DecodeValidUtf8(text.data() + at, bytes), out);
    at += bytes;
  }
  return Change::kText;
}

Result<Normalizer::Change> Normalizer::Apply(const Precompiled& step, std::string_view text, std::string& out) {
  return step.map->RewriteGraphemes(text, out) ? Change::kText : Change::kNone;
}

Result<Normalizer::Change> Normalizer::Apply(const SentencePiece& step, std::string_view text, std::string& out) {
  step.normalizer->Run(text, out);
  return Change::kText;
}

}  // namespace nunspark::text
