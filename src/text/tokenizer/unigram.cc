#include "text/tokenizer/unigram.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"
#include "base/json.h"
#include "text/tokenizer/valid_utf8.h"

namespace nunspark::text {
namespace {

// How much worse than the worst piece an unknown character is (SentencePiece's constant).
constexpr double kUnknownPenalty = 10.0;

constexpr uint32_t kNoStart = UINT32_MAX;

}  // namespace

Unigram::Unigram(const Vocabulary& vocabulary, std::span<const UnigramPiece> pieces, const UnigramOptions& options)
    : vocabulary_(vocabulary), options_(options) {
  CHECK(!pieces.empty());
  double worst = pieces[0].score;
  std::vector<DoubleArray::Key> keys;
  keys.reserve(pieces.size());
  scores_.reserve(pieces.size());
  for (const UnigramPiece& piece : pieces) {
    worst = std::min(worst, piece.score);
    scores_.push_back(piece.score);
    // Of pieces with one text the last one counts.
    const std::string_view text = vocabulary_.Text(piece.id);
    keys.push_back({text, vocabulary_.Find(text)});
  }
  unknown_score_ = worst - kUnknownPenalty;
  trie_.Build(std::move(keys));
  for (int byte = 0; byte < 256; ++byte) fallback_[byte] = vocabulary_.Find(fmt::format("<0x{:02X}>", byte));
}

int64_t Unigram::memory_bytes() const {
  return static_cast<int64_t>(scores_.capacity() * sizeof(double) + sizeof(*this)) + trie_.memory_bytes();
}

Status Unigram::Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                       std::vector<TokenId>& ids) const {
  for (const Span& piece : pieces) {
    RETURN_IF_ERROR(EncodePiece(text.substr(piece.begin, piece.end - piece.begin), scratch, ids));
  }
  return Status();
}

Status Unigram::EncodePiece(std::string_view piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
  const size_t size = piece.size();
  // By end of a token: the best score up to there, where its last token starts and which one it is.
  std::vector<double>& best = scratch.scores;
  std::vector<uint32_t>& start = scratch.previous;
  std::vector<uint32_t>& token = scratch.symbols;
  best.assign(size + 1, 0.0);
  start.assign(size + 1, kNoStart);
  token.assign(size + 1, 0);
  const auto offer = [&](size_t begin, size_t end, double score, uint32_t id) {
    if (start[end] != kNoStart && score <= best[end]) return;
    best[end] = score;
    start[end] = static_cast<uint32_t>(begin);
    token[end] = id;
  };
  for (size_t begin = 0; begin < size;) {
    const size_t character_bytes = ValidUtf8Length(piece[begin]);
    bool has_single = false;
    const size_t steps = trie_.FindPrefixes(piece.substr(begin), [&](size_t bytes, int32_t id) {
      offer(begin, begin + bytes, scores_[static_cast<size_t>(id)] + best[begin], static_cast<uint32_t>(id));
      has_single = has_single || bytes == character_bytes;
    });
    RETURN_IF_ERROR(scratch.work.Spend(steps));
    if (!has_single) {
      if (!options_.unknown.has_value()) {
        return DataLossError(fmt::format("the vocabulary has no token for {} and no unknown token",
                                         JsonQuote(piece.substr(begin, character_bytes))));
      }
      offer(begin, begin + character_bytes, unknown_score_ + best[begin], static_cast<uint32_t>(*options_.unknown));
    }
    begin += character_bytes;
  }
  // Backwards along the best path; neighbouring unknowns become one token.
  std::vector<uint32_t>& ends = scratch.next;
  ends.clear();
  bool previous_unknown = false;
  for (size_t end = size; end > 0; end = start[end]) {
    const bool unknown = options_.unknown.has_value() && token[end] == static_cast<uint32_t>(*options_.unknown);
    if (!(unknown && previous_unknown)) ends.push_back(static_cast<uint32_t>(end));
    previous_unknown = unknown;
  }
  size_t begin = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    RETURN_IF_ERROR(AppendToken(piece.substr(begin, *end - begin), ids));
    begin = *end;
  }
  return Status();
}

// As the reference does it, by text: what was unknown in parts may be a token as a whole.
Status Unigram::AppendToken(std::string_view text, std::vector<TokenId>& ids) const {
  const TokenId id = vocabulary_.Find(text);
  if (id != kNoToken) {
    ids.push_back(id);
    return Status();
  }
  const auto fallback_of = [this](char byte) { return fallback_[static_cast<uint8_t>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return fallback_of(byte) != kNoToken; })) {
    for (const char byte : text) ids.push_back(fallback_of(byte));
    return Status();
  }
  CHECK(options_.unknown.has_value());  // else EncodePiece would have failed
  ids.push_back(*options_.unknown);
  return Status();
}

}  // namespace nunspark::text
