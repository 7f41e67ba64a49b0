#include "text/tokenizer/gguf_pre.h"

#include <fmt/format.h>

#include "base/json.h"
#include "text/tokenizer/patterns.h"

namespace nunspark::text {
namespace {

// Patterns that no scanner is written for, with code points where letters look alike. The first six are those of
// DeepSeek's models before version 3.
constexpr std::string_view kLineEnd = "[\r\n]";
constexpr std::string_view kCasedLetters =
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-"
    "\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-"
    "\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+";
constexpr std::string_view kWideSigns = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+";
constexpr std::string_view kEndSpace = R"(\s+$)";
constexpr std::string_view kIdeographs = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
constexpr std::string_view kLetters = R"(\s?\p{L}+)";
constexpr std::string_view kPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kBloom = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+";
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+|[\r\n]|\\s+(?!\\S)|\\s+";
constexpr std::string_view kDigitGroups = R"(\d{1,3}(?=(?:\d{3})*\b))";
constexpr std::string_view kLineRuns = R"((?:\r?\n)+(?!\r?\n))";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";

// One step of a row, in the order of the file.
struct Step {
  enum class Kind : uint8_t {
    kNone,
    kSplit,        // by `pattern`
    kSplitToNext,  // ... each match stays with what follows it
    kOneDigit,     // every digit for itself
    kDigitRuns,
    kSignRuns,   // runs of punctuation
    kGpt2Bytes,  // GPT-2's pattern, then bytes; other rows end with bytes alone
  } kind = Kind::kNone;
  std::string_view pattern;
};
constexpr Step Split(std::string_view pattern) { return {Step::Kind::kSplit, pattern}; }
constexpr Step kOneDigit{Step::Kind::kOneDigit, {}};
constexpr Step kGpt2Bytes{Step::Kind::kGpt2Bytes, {}};
constexpr Step kFalconDigits = Split("[0-9][0-9][0-9]");

enum class Form : uint8_t { kAsIs, kNfc };
enum class Merges : uint8_t { kHold, kIgnored };
enum class Bos : uint8_t { kNo, kYes };

struct Row {
  std::string_view names;  // separated by spaces
  Form form;
  Merges merges;
  Bos bos;
  Step steps[6];
};

// Sources: the tokenizer.json files that the families publish; for names without one, llama.cpp's own table.
constexpr Row kRows[] = {
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 lfm2 midm-2.0",
     Form::kAsIs,
     Merges::kIgnored,
     Bos::kYes,
     {Split(patterns::kLlama3)}},
    {"dbrx smaug-bpe", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(patterns::kLlama3)}},
    {"glm4 chatglm-bpe", Form::kAsIs, Merges::kIgnored, Bos::kNo, {Split(patterns::kLlama3)}},
    {"qwen2 deepseek-r1-qwen stablelm2 hunyuan f2llmv2",
     Form::kNfc,
     Merges::kHold,
     Bos::kNo,
     {Split(patterns::kQwen2)}},
    {"megrez kormo solar-open grok-2", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(patterns::kQwen2)}},
    {"qwen35", Form::kNfc, Merges::kHold, Bos::kNo, {Split(patterns::kQwen35)}},
    {"gpt-2 phi-2 jais trillion granite-docling exaone4 a.x-4.0 gigachat mellum",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {kGpt2Bytes}},
    {"olmo mpt", Form::kNfc, Merges::kHold, Bos::kNo, {kGpt2Bytes}},
    {"smollm starcoder refact codeshell minerva-7b exaone mellum2",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {kOneDigit, kGpt2Bytes}},
    {"command-r", Form::kNfc, Merges::kHold, Bos::kNo, {kOneDigit, kGpt2Bytes}},
    {"tekken pixtral", Form::kAsIs, Merges::kIgnored, Bos::kYes, {Split(patterns::kTekken)}},
    {"gpt-4o llama4", Form::kAsIs, Merges::kIgnored, Bos::kNo, {Split(patterns::kO200k)}},
    {"minimax-m2 kanana2 talkie", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(patterns::kO200k)}},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {Split(patterns::kThreeDigits), Split(patterns::kHanAndKana), Split(patterns::kDeepSeekV3)}},
    {"deepseek-llm",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {Split(kLineEnd), Split(kCasedLetters), Split(kWideSigns), Split(kEndSpace), Split(kIdeographs), kOneDigit}},
    {"deepseek-coder",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {Split(kLineEnd), Split(kLetters), Split(kPunctuation), Split(kIdeographs), kOneDigit}},
    {"spark2_5",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {Split(patterns::kThreeDigits), Split(patterns::kHanAndKana), Split(kSpark), kOneDigit}},
    {"seed-coder", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(patterns::kSeedOss)}},
    {"youtu", Form::kAsIs, Merges::kIgnored, Bos::kNo, {Split(patterns::kYoutuRuns), Split(patterns::kYoutu)}},
    {"kimi-k2", Form::kAsIs, Merges::kIgnored, Bos::kNo, {Split(patterns::kKimi)}},
    {"bailingmoe bailingmoe2 llada-moe", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kBailing)}},
    {"minicpm5", Form::kAsIs, Merges::kIgnored, Bos::kNo, {Split(patterns::kThreeDigits), Split(kMiniCpm5)}},
    {"laguna", Form::kAsIs, Merges::kHold, Bos::kNo, {{Step::Kind::kSplitToNext, kLineRuns}, Split(patterns::kQwen2)}},
    {"exaone-moe", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kExaoneMoe)}},
    {"tiny_aya cohere2moe", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kDigitGroups), Split(patterns::kO200k)}},
    {"falcon",
     Form::kAsIs,
     Merges::kHold,
     Bos::kNo,
     {{Step::Kind::kSignRuns, {}}, kGpt2Bytes, {Step::Kind::kDigitRuns, {}}, kFalconDigits}},
    {"bloom gpt3-finnish poro-chat", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kBloom)}},
    {"viking", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kBloom), kOneDigit}},
    {"jais-2", Form::kAsIs, Merges::kHold, Bos::kNo, {Split(kJais2)}},
};
constexpr std::string_view kWholeWordNames = "gemma4 sarvam-moe";

// Calls use(name) for each name of a list until it gives true.
template <typename Use>
bool AnyName(std::string_view names, Use use) {
  while (!names.empty()) {
    const size_t space = names.find(' ');
    if (use(names.substr(0, space))) return true;
    names.remove_prefix(space == std::string_view::npos ? names.size() : space + 1);
  }
  return false;
}

bool Has(std::string_view names, std::string_view wanted) {
  return AnyName(names, [wanted](std::string_view name) { return name == wanted; });
}

std::string SplitJson(std::string_view pattern, std::string_view behavior) {
  return fmt::format(R"({{"type":"Split","pattern":{{"Regex":{}}},"behavior":"{}","invert":false}})",
                     JsonQuote(pattern), behavior);
}

std::string BytesJson(bool with_gpt2_pattern) {
  return fmt::format(R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":{}}})",
                     with_gpt2_pattern);
}

std::string StepJson(const Step& step) {
  switch (step.kind) {
    case Step::Kind::kNone: return "";
    case Step::Kind::kSplit: return SplitJson(step.pattern, "Isolated");
    case Step::Kind::kSplitToNext: return SplitJson(step.pattern, "MergedWithNext");
    case Step::Kind::kOneDigit: return R"({"type":"Digits","individual_digits":true})";
    case Step::Kind::kDigitRuns: return R"({"type":"Digits","individual_digits":false})";
    case Step::Kind::kSignRuns: return R"({"type":"Punctuation","behavior":"Contiguous"})";
    case Step::Kind::kGpt2Bytes: return BytesJson(true);
  }
  return "";
}

GgufPre PreOf(const Row& row) {
  GgufPre pre{GgufPipeline::kByteLevel, row.form == Form::kNfc, row.merges == Merges::kIgnored, row.bos == Bos::kYes,
              ""};
  bool has_bytes = false;
  for (const Step& step : row.steps) {
    if (step.kind == Step::Kind::kNone) break;
    if (!pre.steps.empty()) pre.steps += ',';
    pre.steps += StepJson(step);
    has_bytes = has_bytes || step.kind == Step::Kind::kGpt2Bytes;
  }
  if (!has_bytes) pre.steps += "," + BytesJson(false);
  return pre;
}

}  // namespace

std::optional<GgufPre> FindGgufPre(std::string_view name) {
  if (name.find(' ') != std::string_view::npos) return std::nullopt;
  if (Has(kWholeWordNames, name)) return GgufPre{GgufPipeline::kWholeWords, false, false, false, ""};
  for (const Row& row : kRows) {
    if (Has(row.names, name)) return PreOf(row);
  }
  return std::nullopt;
}

std::string KnownGgufPres() {
  std::string list;
  const auto append = [&list](std::string_view name) {
    if (!list.empty()) list += ", ";
    list += name;
    return false;
  };
  for (const Row& row : kRows) AnyName(row.names, append);
  AnyName(kWholeWordNames, append);
  return list;
}

}  // namespace nunspark::text
