#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "base/check.h"
#include "text/tokenizer/valid_utf8.h"

namespace nunspark::text {
namespace {

constexpr int kIdBits = 21;
constexpr int kRankBits = 22;
constexpr uint64_t kRankMask = (uint64_t{1} << kRankBits) - 1;
constexpr uint64_t kEmptyPair = ~uint64_t{0};
constexpr uint32_t kNone = UINT32_MAX;

// Up to this many symbols a scan for the lowest rank is faster than a heap.
constexpr size_t kShortMax = 48;

// 2^20 bits: with the 10^5 different pairs of a large vocabulary one place in ten is kept whole needlessly, which costs
// time but is still correct.
constexpr size_t kJointBits = 20;

uint64_t PairKey(uint32_t left, uint32_t right) { return static_cast<uint64_t>(left) << kIdBits | right; }

uint64_t HashPair(uint64_t key) { return key * kHashMultiplier; }

size_t JointOf(uint32_t before, uint32_t after) {
  return static_cast<size_t>(HashPair(static_cast<uint64_t>(before) << 21 | after) >> (64 - kJointBits));
}

uint32_t FirstCharacter(std::string_view text) {
  uint32_t bytes = 0;
  return DecodeValidUtf8(text.data(), bytes);
}

uint32_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && IsUtf8Continuation(text[at])) --at;
  return FirstCharacter(text.substr(at));
}

}  // namespace

Bpe::Bpe(const Vocabulary& keys, std::span<const MergeRule> rules, BpeOptions options)
    : keys_(keys), options_(std::move(options)) {
  CHECK(rules.size() <= kMergesMax);
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const bool is_key = options_.unit == BpeUnit::kByte || byte < 0x80;
    single_[byte] = is_key ? keys_.Find(std::string_view(&text, 1)) : kNoToken;
    fallback_[byte] = options_.byte_fallback ? keys_.Find(fmt::format("<0x{:02X}>", byte)) : kNoToken;
  }
  BuildMergeTable(rules);
  BuildJoints(rules);
  const size_t id_count = static_cast<size_t>(keys_.id_end());
  known_ = std::make_unique<std::atomic<Known>[]>(id_count);
}

void Bpe::BuildMergeTable(std::span<const MergeRule> rules) {
  const size_t slots = std::bit_ceil(rules.size() * 2 + 2);
  pairs_shift_ = 64 - std::countr_zero(slots);
  pairs_.assign(slots, kEmptyPair);
  uint32_t rank_end = 0;
  for (const MergeRule& rule : rules) rank_end = std::max(rank_end, rule.rank + 1);
  CHECK(rank_end <= kMergesMax);
  results_.assign(rank_end, kNoToken);
  for (const MergeRule& rule : rules) {
    const uint64_t key = PairKey(static_cast<uint32_t>(rule.left), static_cast<uint32_t>(rule.right));
    results_[rule.rank] = rule.result;
    size_t at = HashPair(key) >> pairs_shift_;
    while (pairs_[at] != kEmptyPair && pairs_[at] >> kRankBits != key) at = (at + 1) & (slots - 1);
    pairs_[at] = key << kRankBits | rule.rank;
  }
}

void Bpe::BuildJoints(std::span<const MergeRule> rules) {
  if (options_.unit == BpeUnit::kByte) return;  // pieces are short already
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return;
  // Characters that vanish or fuse make neighbours of characters that were none.
  const bool complete_fallback = std::find(fallback_.begin(), fallback_.end(), kNoToken) == fallback_.end();
  const bool separate_unknown = options_.unknown.has_value() && !options_.fuse_unknown && !options_.byte_fallback;
  if (!complete_fallback && !separate_unknown) return;

  std::vector<bool> has_no_text(static_cast<size_t>(keys_.id_end()), false);
  for (const TokenId id : fallback_) {
    if (id != kNoToken) has_no_text[static_cast<size_t>(id)] = true;
  }
  if (options_.unknown.has_value()) has_no_text[static_cast<size_t>(*options_.unknown)] = true;

  joints_.assign((size_t{1} << kJointBits) / 64, 0);
  for (const MergeRule& rule : rules) {
    const std::string_view left = keys_.Text(rule.left);
    const std::string_view right = keys_.Text(rule.right);
    const bool stands_for_other_text =
        has_no_text[static_cast<size_t>(rule.left)] || has_no_text[static_cast<size_t>(rule.right)];
    if (stands_for_other_text || left.empty() || right.empty()) {
      joints_.clear();
      return;
    }
    const size_t joint = JointOf(LastCharacter(left), FirstCharacter(right));
    joints_[joint / 64] |= uint64_t{1} << (joint % 64);
  }
}

int64_t Bpe::memory_bytes() const {
  return static_cast<int64_t>(pairs_.capacity() * sizeof(uint64_t) + results_.capacity() * sizeof(TokenId) +
                              joints_.capacity() * sizeof(uint64_t) + static_cast<size_t>(keys_.id_end()) +
                              sizeof(*this));
}

Status Bpe::Encode(std::string_view text, std::span<const Span> pieces, EncodeScratch& scratch,
                   std::vector<TokenId>& ids) const {
  // A slot for every 8 bytes holds all pieces of a short text; beyond 16384 slots the table would leave the cache.
  const size_t slots = std::bit_ceil(std::clamp<size_t>(text.size() / 8, 16, 16384));
  scratch.cache.assign(slots, CachedPiece());
  for (const Span& piece : pieces) EncodePiece(text, piece, scratch, ids);
  if (scratch.unknown_was_missing) {
    return DataLossError("the text has characters without a token, and the file's unknown token has no id");
  }
  return Status();
}

void Bpe::EncodePiece(std::string_view text, Span piece, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
  if (piece.begin == piece.end) return;
  if (joints_.empty()) {
    EncodeChunk(text, piece, scratch, ids);
    return;
  }
  if (options_.ignore_merges) {
    const TokenId id = keys_.Find(text.substr(piece.begin, piece.end - piece.begin));
    if (id != kNoToken) {
      ids.push_back(id);
      return;
    }
  }
  uint32_t begin = piece.begin;
  uint32_t bytes = 0;
  uint32_t before = DecodeValidUtf8(text.data() + begin, bytes);
  for (uint32_t at = begin + bytes; at < piece.end; at += bytes) {
    const uint32_t after = DecodeValidUtf8(text.data() + at, bytes);
    const size_t joint = JointOf(before, after);
    if ((joints_[joint / 64] >> (joint % 64) & 1) == 0) {
      EncodeChunk(text, {begin, at}, scratch, ids);
      begin = at;
    }
    before = after;
  }
  EncodeChunk(text, {begin, piece.end}, scratch, ids);
}

void Bpe::EncodeChunk(std::string_view text, Span chunk, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
  const std::string_view bytes = text.substr(chunk.begin, chunk.end - chunk.begin);
  const uint64_t hash = HashText(bytes);
  const TokenId id = keys_.Find(bytes, hash);
  if (id != kNoToken) {
    if ((options_.ignore_merges && joints_.empty()) || MergesToItself(bytes, id, scratch)) {
      ids.push_back(id);
      return;
    }
  }
  CachedPiece& cached = scratch.cache[hash & (scratch.cache.size() - 1)];
  if (cached.ids_count != 0 && cached.hash == hash &&
      text.substr(cached.piece.begin, cached.piece.end - cached.piece.begin) == bytes) {
    const size_t old_size = ids.size();
    ids.resize(old_size + cached.ids_count);
    std::copy_n(ids.begin() + cached.ids_begin, cached.ids_count, ids.begin() + static_cast<ptrdiff_t>(old_size));
    return;
  }
  const size_t ids_begin = ids.size();
  Merge(bytes, scratch, ids);
  cached = {hash, chunk, static_cast<uint32_t>(ids_begin), static_cast<uint32_t>(ids.size() - ids_begin)};
}

bool Bpe::MergesToItself(std::string_view chunk, TokenId id, EncodeScratch& scratch) const {
  std::atomic<Known>& known = known_[static_cast<size_t>(id)];
  const Known before = known.load(std::memory_order_relaxed);
  if (before != Known::kNothing) return before == Known::kWhole;
  std::vector<TokenId> merged;
  Merge(chunk, scratch, merged);
  const bool whole = merged.size() == 1 && merged[0] == id;
  // Two texts may share one id in a strange vocabulary; only the text that look-ups by id give may be remembered.
  if (keys_.Text(id) == chunk) known.store(whole ? Known::kWhole : Known::kParts, std::memory_order_relaxed);
  return whole;
}

void Bpe::Merge(std::string_view chunk, EncodeScratch& scratch, std::vector<TokenId>& ids) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  symbols.clear();
  if (options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty()) {
    FirstSymbols(chunk, scratch);
  } else {
    FirstSymbolsWithAffixes(chunk, scratch);
  }
  size_t count = symbols.size();
  if (count > kShortMax) {
    count = MergeLong(scratch);
  } else if (count > 1) {
    uint32_t ranks[kShortMax];
    count = MergeShort(symbols.data(), ranks, count);
  }
  for (size_t i = 0; i < count; ++i) ids.push_back(static_cast<TokenId>(symbols[i]));
}

void Bpe::FirstSymbols(std::string_view chunk, EncodeScratch& scratch) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  bool unknown_pending = false;
  for (size_t at = 0; at < chunk.size();) {
    const bool single = options_.unit == BpeUnit::kByte || static_cast<uint8_t>(chunk[at]) < 0x80;
    const uint32_t bytes = single ? 1 : ValidUtf8Length(chunk[at]);
    const std::string_view character = chunk.substr(at, bytes);
    const TokenId id = single ? single_[static_cast<uint8_t>(chunk[at])] : keys_.Find(character);
    at += bytes;
    if (id == kNoToken) {
      AppendUnknown(character, scratch, unknown_pending);
      continue;
    }
    if (unknown_pending) {
      symbols.push_back(static_cast<uint32_t>(*options_.unknown));
      unknown_pending = false;
    }
    symbols.push_back(static_cast<uint32_t>(id));
  }
  if (unknown_pending) symbols.push_back(static_cast<uint32_t>(*options_.unknown));
}

void Bpe::FirstSymbolsWithAffixes(std::string_view chunk, EncodeScratch& scratch) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  bool unknown_pending = false;
  std::string key;
  for (size_t at = 0; at < chunk.size();) {
    const uint32_t bytes = ValidUtf8Length(chunk[at]);
    key.clear();
    if (at != 0) key += options_.continuing_subword_prefix;
    key += chunk.substr(at, bytes);
    at += bytes;
    if (at == chunk.size()) key += options_.end_of_word_suffix;
    const TokenId id = keys_.Find(key);
    if (id == kNoToken) {
      AppendUnknown(key, scratch, unknown_pending);
      continue;
    }
    if (unknown_pending) {
      symbols.push_back(static_cast<uint32_t>(*options_.unknown));
      unknown_pending = false;
    }
    symbols.push_back(static_cast<uint32_t>(id));
  }
  if (unknown_pending) symbols.push_back(static_cast<uint32_t>(*options_.unknown));
}

// As the reference does it: bytes come out at once, while an unknown token waits for the next known character - so an
// unknown character before a byte fallback comes after it.
void Bpe::AppendUnknown(std::string_view character, EncodeScratch& scratch, bool& unknown_pending) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  if (options_.byte_fallback) {
    const bool all = std::all_of(character.begin(), character.end(),
                                 [this](char byte) { return fallback_[static_cast<uint8_t>(byte)] != kNoToken; });
    if (all) {
      for (const char byte : character) symbols.push_back(static_cast<uint32_t>(fallback_[static_cast<uint8_t>(byte)]));
      return;
    }
  }
  if (!options_.unknown.has_value()) {  // the character is dropped
    scratch.unknown_was_missing = options_.unknown_is_missing;
    return;
  }
  if (unknown_pending && !options_.fuse_unknown) symbols.push_back(static_cast<uint32_t>(*options_.unknown));
  unknown_pending = true;
}

uint32_t Bpe::RankOf(uint32_t left, uint32_t right) const {
  const uint64_t key = PairKey(left, right);
  const size_t mask = pairs_.size() - 1;
  for (size_t at = HashPair(key) >> pairs_shift_;; at = (at + 1) & mask) {
    const uint64_t pair = pairs_[at];
    if (pair >> kRankBits == key) return static_cast<uint32_t>(pair & kRankMask);
    if (pair == kEmptyPair) return kNoRank;
  }
}

// ranks[i] is the rank of the pair (i, i + 1). Lowest rank first, leftmost of equals.
size_t Bpe::MergeShort(uint32_t* symbols, uint32_t* ranks, size_t count) const {
  for (size_t i = 0; i + 1 < count; ++i) ranks[i] = RankOf(symbols[i], symbols[i + 1]);
  while (count > 1) {
    size_t best = 0;
    uint32_t best_rank = ranks[0];
    for (size_t i = 1; i + 1 < count; ++i) {
      if (ranks[i] < best_rank) {
        best_rank = ranks[i];
        best = i;
      }
    }
    if (best_rank == kNoRank) break;
    symbols[best] = static_cast<uint32_t>(results_[best_rank]);
    for (size_t i = best + 1; i + 1 < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 2 < count; ++i) ranks[i] = ranks[i + 1];
    --count;
    if (best > 0) ranks[best - 1] = RankOf(symbols[best - 1], symbols[best]);
    if (best + 1 < count) ranks[best] = RankOf(symbols[best], symbols[best + 1]);
  }
  return count;
}

// A linked list of symbols and a heap of (rank, place); an entry whose rank is no longer that of its place is stale.
size_t Bpe::MergeLong(EncodeScratch& scratch) const {
  std::vector<uint32_t>& symbols = scratch.symbols;
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  scratch.previous.resize(count);
  scratch.next.resize(count);
  scratch.ranks.assign(count, kNoRank);
  scratch.heap.clear();
  for (uint32_t i = 0; i < count; ++i) {
    scratch.previous[i] = i == 0 ? kNone : i - 1;
    scratch.next[i] = i + 1 == count ? kNone : i + 1;
    if (i + 1 == count) break;
    const uint32_t rank = RankOf(symbols[i], symbols[i + 1]);
    scratch.ranks[i] = rank;
    if (rank != kNoRank) scratch.heap.push_back(static_cast<uint64_t>(rank) << 32 | i);
  }
  const auto later = std::greater<uint64_t>();
  std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  const auto update = [&](uint32_t place) {
    const uint32_t right = scratch.next[place];
    const uint32_t rank = right == kNone ? kNoRank : RankOf(symbols[place], symbols[right]);
    scratch.ranks[place] = rank;
    if (rank == kNoRank) return;
    scratch.heap.push_back(static_cast<uint64_t>(rank) << 32 | place);
    std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  };
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), later);
    const uint64_t top = scratch.heap.back();
    scratch.heap.pop_back();
    const uint32_t place = static_cast<uint32_t>(top);
    if (scratch.ranks[place] != top >> 32) continue;
    const uint32_t gone = scratch.next[place];
    symbols[place] = static_cast<uint32_t>(results_[top >> 32]);
    scratch.ranks[gone] = kNoRank;
    scratch.next[place] = scratch.next[gone];
    if (scratch.next[place] != kNone) scratch.previous[scratch.next[place]] = place;
    update(place);
    if (scratch.previous[place] != kNone) update(scratch.previous[place]);
  }
  uint32_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = scratch.next[i]) symbols[kept++] = symbols[i];
  return kept;
}

}  // namespace nunspark::text
