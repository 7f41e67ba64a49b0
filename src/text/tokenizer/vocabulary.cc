#include "text/tokenizer/vocabulary.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace nunspark::text {
namespace {
constexpr size_t kSlotsMin = 64;
}  // namespace

void Vocabulary::Reserve(size_t token_count, size_t text_bytes) {
  arena_.reserve(text_bytes);
  texts_.reserve(token_count);
  by_text_.reserve(token_count);
  Grow(std::bit_ceil(token_count * 3 / 2 + kSlotsMin));
}

void Vocabulary::Insert(std::string_view text, TokenId id) {
  CHECK(id >= 0 && id <= kVocabIdMax);
  CHECK(arena_.size() + text.size() < UINT32_MAX);
  if ((by_text_.size() + 1) * 4 > slots_.size() * 3) Grow(std::max(kSlotsMin, slots_.size() * 2));
  const uint64_t hash = HashText(text);
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  uint32_t begin = static_cast<uint32_t>(arena_.size());
  for (; slots_[at].entry != kAbsent; at = (at + 1) & mask) {
    if (slots_[at].tag != tag) continue;
    Keyed& known = by_text_[slots_[at].entry];
    if (std::string_view(arena_).substr(known.begin, known.bytes) == text) {
      known.id = id;
      begin = known.begin;
      break;
    }
  }
  if (slots_[at].entry == kAbsent) {
    slots_[at] = {tag, static_cast<uint32_t>(by_text_.size())};
    by_text_.push_back({begin, static_cast<uint32_t>(text.size()), id});
    arena_ += text;
    ++size_;
  }
  if (static_cast<size_t>(id) >= texts_.size()) texts_.resize(static_cast<size_t>(id) + 1);
  Entry& entry = texts_[static_cast<size_t>(id)];
  if (entry.bytes == kAbsent) entry = {begin, static_cast<uint32_t>(text.size())};
}

TokenId Vocabulary::Find(std::string_view text, uint64_t hash) const {
  if (slots_.empty()) return kNoToken;
  const uint32_t tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t at = hash & mask; slots_[at].entry != kAbsent; at = (at + 1) & mask) {
    if (slots_[at].tag != tag) continue;
    const Keyed& known = by_text_[slots_[at].entry];
    if (known.bytes == text.size() && std::memcmp(arena_.data() + known.begin, text.data(), text.size()) == 0) {
      return known.id;
    }
  }
  return kNoToken;
}

std::string_view Vocabulary::Text(TokenId id) const {
  if (!Contains(id)) return {};
  const Entry& entry = texts_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(entry.begin, entry.bytes);
}

bool Vocabulary::Contains(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < texts_.size() && texts_[static_cast<size_t>(id)].bytes != kAbsent;
}

void Vocabulary::ShrinkToFit() {
  arena_.shrink_to_fit();
  texts_.shrink_to_fit();
  by_text_.shrink_to_fit();
}

int64_t Vocabulary::memory_bytes() const {
  return static_cast<int64_t>(arena_.capacity() + texts_.capacity() * sizeof(Entry) +
                              by_text_.capacity() * sizeof(Keyed) + slots_.capacity() * sizeof(Slot));
}

void Vocabulary::Grow(size_t slot_count) {
  if (slot_count <= slots_.size()) return;
  slots_.assign(slot_count, Slot());
  const size_t mask = slot_count - 1;
  for (uint32_t i = 0; i < by_text_.size(); ++i) {
    const uint64_t hash = HashText(std::string_view(arena_).substr(by_text_[i].begin, by_text_[i].bytes));
    size_t at = hash & mask;
    while (slots_[at].entry != kAbsent) at = (at + 1) & mask;
    slots_[at] = {static_cast<uint32_t>(hash >> 32), i};
  }
}

}  // namespace nunspark::text
