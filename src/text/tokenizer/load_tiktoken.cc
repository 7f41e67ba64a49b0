// tiktoken rank files: one token a line, its bytes in base64 and its rank, which is its id.
#include <charconv>

#include <fmt/format.h>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/patterns.h"

namespace nunspark::text {
namespace {

constexpr size_t kTokenBytesMax = 4096;

// The pattern of the family that has this many ranks.
std::string_view PatternFor(size_t rank_count) {
  switch (rank_count) {
    case 50256:
    case 50280: return patterns::kGpt2;
    case 100256: return patterns::kCl100k;
    case 151643: return patterns::kQwen2;
    case 163584: return patterns::kKimi;
    case 199998:
    case 200000: return patterns::kO200k;
    default: return patterns::kLlama3;
  }
}

struct Line {
  std::string_view encoded;
  int64_t rank;
};

std::optional<Line> ParseLine(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return std::nullopt;
  Line parsed{line.substr(0, space), 0};
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(line.data() + space + 1, end, parsed.rank);
  if (error != std::errc() || stop != end || parsed.rank < 0 || parsed.rank > kVocabIdMax) return std::nullopt;
  return parsed;
}

// Cuts the next line off; without its end.
std::string_view NextLine(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Every way to make a token of two others, at the token's rank: what counts is the rank of the joined bytes.
Result<std::vector<MergeRule>> RulesOf(const Vocabulary& keys, std::string_view what) {
  std::vector<MergeRule> rules;
  size_t cut_bytes = 0;
  for (TokenId id = 0; id < keys.id_end(); ++id) {
    const std::string_view bytes = keys.Text(id);
    cut_bytes += bytes.size() * bytes.size();
    if (cut_bytes > kCutBytesMax) {
      return DataLossError(
          fmt::format("{}: rank {}: expected tokens whose lengths squared add up to {} at most, found more", what, id,
                      kCutBytesMax));
    }
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      const TokenId left = keys.Find(bytes.substr(0, cut));
      if (left == kNoToken) continue;
      const TokenId right = keys.Find(bytes.substr(cut));
      if (right != kNoToken) rules.push_back({left, right, id, static_cast<uint32_t>(id)});
    }
    if (rules.size() > kMergesMax) {
      return DataLossError(fmt::format("{}: expected at most {} ways to join tokens, found more", what, kMergesMax));
    }
  }
  return rules;
}

}  // namespace

bool LooksLikeTiktoken(std::string_view content) {
  std::string_view rest = content.substr(0, 2 * kTokenBytesMax);
  const std::optional<Line> line = ParseLine(NextLine(rest));
  return line.has_value() && DecodeBase64(line->encoded).has_value();
}

Result<std::unique_ptr<PipelineTokenizer>> LoadTiktoken(std::string_view content, std::string_view what,
                                                        const std::vector<ConfigToken>& tokens,
                                                        std::string_view pattern) {
  PipelineParts parts;
  parts.raw_keys = std::make_unique<Vocabulary>();
  parts.raw_keys->Reserve(content.size() / 16, content.size() / 2);
  std::string visible;
  for (size_t number = 1; !content.empty(); ++number) {
    const std::string_view text = NextLine(content);
    if (text.empty()) continue;
    const std::optional<Line> line = ParseLine(text);
    const std::optional<std::string> bytes = line.has_value() ? DecodeBase64(line->encoded) : std::nullopt;
    if (!bytes.has_value() || bytes->empty() || bytes->size() > kTokenBytesMax) {
      return DataLossError(fmt::format("{}: line {}: expected a token in base64 and its rank, found '{}'", what, number,
                                       text.substr(0, 60)));
    }
    const TokenId id = static_cast<TokenId>(line->rank);
    if (parts.raw_keys->Find(*bytes) != kNoToken || parts.raw_keys->Contains(id)) {
      return DataLossError(
          fmt::format("{}: line {}: expected a new token and rank, found one that was there before", what, number));
    }
    parts.raw_keys->Insert(*bytes, id);
    visible.clear();
    AppendByteLevel(*bytes, visible);
    parts.vocabulary->Insert(visible, id);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (parts.raw_keys->Find(std::string_view(&text, 1)) == kNoToken) {
      return DataLossError(fmt::format("{}: expected a token for each byte, found none for 0x{:02x}", what, byte));
    }
  }
  ASSIGN_OR_RETURN(const std::vector<MergeRule> rules, RulesOf(*parts.raw_keys, what));
  const std::string_view chosen = pattern.empty() ? PatternFor(parts.raw_keys->size()) : pattern;
  ASSIGN_OR_RETURN(Pattern compiled, Pattern::FromRegex(chosen, what));
  parts.pre_tokenizer = PreTokenizer::IsolateMatches(std::move(compiled));
  BpeOptions options;
  options.unit = BpeUnit::kByte;
  options.ignore_merges = true;
  parts.model = std::make_unique<Bpe>(*parts.raw_keys, rules, std::move(options));
  parts.decoder = Decoder::ByteLevel();
  for (const ConfigToken& token : tokens) parts.added.AddWithId(token.token, token.id);
  RETURN_IF_ERROR(parts.added.Finish(Normalizer(), *parts.vocabulary));
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

}  // namespace nunspark::text
