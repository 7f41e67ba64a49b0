#include "text/grammar/grammar_vocabulary.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/grammar/automaton.h"

namespace nunspark::text {
namespace {

// Longer tokens are left out: none of a real vocabulary is.
constexpr size_t kMostTokenBytes = 1024;

// How many characters a text of plain ones has; none for other texts.
std::optional<uint32_t> PlainChars(std::string_view text) {
  uint32_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const Utf8Char c = DecodeUtf8(text, at);
    if (!c.valid || !IsPlainChar(c.code_point)) return std::nullopt;
    at += c.bytes;
  }
  return count;
}

bool Holds(std::span<const TokenId> ids, TokenId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); }

}  // namespace

TokenTrie TokenTrie::Build(std::vector<std::pair<std::string_view, TokenId>>& tokens) {
  std::sort(tokens.begin(), tokens.end());
  TokenTrie trie;
  std::vector<uint32_t> path;  // nodes of the text before
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      trie.nodes[path.back()].after = static_cast<uint32_t>(trie.nodes.size());
  };
  for (const auto& [text, id] : tokens) {
    const size_t same = static_cast<size_t>(
        std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin());
    close(same);
    for (size_t i = same; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(trie.nodes.size()));
      trie.nodes.push_back({.after = 0,
                            .first_token = static_cast<uint32_t>(trie.tokens.size()),
                            .depth = static_cast<uint16_t>(i + 1),
                            .byte = static_cast<uint8_t>(text[i])});
    }
    trie.tokens.push_back(id);
    before = text;
  }
  close(0);
  trie.nodes.shrink_to_fit();
  return trie;
}

Result<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::Create(const Tokenizer& tokenizer,
                                                                           Options options) {
  auto vocabulary = std::make_shared<GrammarVocabulary>();
  const TokenId size = tokenizer.vocab_size();
  for (const std::vector<TokenId>* ids : {&options.end_tokens, &options.spelled_only}) {
    for (const TokenId id : *ids) {
      if (id >= 0 && id < size) continue;
      return InvalidArgumentError(fmt::format("token {} is outside the vocabulary of {} tokens", id, size));
    }
  }
  vocabulary->options_ = std::move(options);
  vocabulary->offsets_.push_back(0);
  std::string bytes;
  for (TokenId id = 0; id < size; ++id) {
    const std::string_view text = tokenizer.TokenText(id);
    const bool special = tokenizer.IsSpecial(id) || vocabulary->IsEnd(id);
    if (text.data() != nullptr && special && !text.empty()) vocabulary->specials_.emplace_back(text, id);
    if (text.data() != nullptr && !special) {
      bytes.clear();
      RETURN_IF_ERROR(tokenizer.AppendRunningBytes(id, bytes).WithContext("a grammar needs the bytes of every token"));
      if (bytes.size() <= kMostTokenBytes) vocabulary->bytes_ += bytes;
      if (IsValidUtf8(bytes)) {
        std::string at_start = tokenizer.Decode(std::span(&id, 1), SkipSpecials::kNo);
        if (at_start != bytes) vocabulary->start_tokens_.push_back({id, std::move(at_start)});
      }
    }
    vocabulary->offsets_.push_back(static_cast<uint32_t>(vocabulary->bytes_.size()));
  }
  std::stable_sort(vocabulary->specials_.begin(), vocabulary->specials_.end(),
                   [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });

  std::vector<std::pair<std::string_view, TokenId>> all;
  std::vector<std::pair<std::string_view, TokenId>> mixed;
  vocabulary->plain_bits_.assign(static_cast<size_t>(size + 31) / 32, 0);
  for (TokenId id = 0; id < size; ++id) {
    const std::string_view text = vocabulary->Bytes(id);
    if (text.empty() || vocabulary->IsSpelledOnly(id)) continue;
    vocabulary->longest_bytes_ = std::max(vocabulary->longest_bytes_, static_cast<uint32_t>(text.size()));
    if (text.size() == 1) vocabulary->single_bytes_[static_cast<uint8_t>(text[0])] = true;
    all.emplace_back(text, id);
    const std::optional<uint32_t> chars = PlainChars(text);
    if (!chars.has_value()) {
      mixed.emplace_back(text, id);
      continue;
    }
    vocabulary->plain_.push_back({id, *chars});
    vocabulary->plain_bits_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  std::stable_sort(vocabulary->plain_.begin(), vocabulary->plain_.end(),
                   [](PlainToken a, PlainToken b) { return a.chars > b.chars; });
  vocabulary->all_ = TokenTrie::Build(all);
  vocabulary->mixed_ = TokenTrie::Build(mixed);
  return std::shared_ptr<const GrammarVocabulary>(std::move(vocabulary));
}

std::string_view GrammarVocabulary::BytesAtStart(TokenId id) const {
  const auto at = std::lower_bound(start_tokens_.begin(), start_tokens_.end(), id,
                                   [](const StartToken& token, TokenId wanted) { return token.id < wanted; });
  return at != start_tokens_.end() && at->id == id ? std::string_view(at->bytes) : Bytes(id);
}

bool GrammarVocabulary::IsEnd(TokenId id) const { return Holds(options_.end_tokens, id); }
bool GrammarVocabulary::IsSpelledOnly(TokenId id) const { return Holds(options_.spelled_only, id); }

std::optional<std::pair<TokenId, size_t>> GrammarVocabulary::SpecialAt(std::string_view text) const {
  for (const auto& [special, id] : specials_) {
    if (text.starts_with(special)) return std::pair(id, special.size());
  }
  return std::nullopt;
}

int64_t GrammarVocabulary::memory_bytes() const {
  size_t bytes = sizeof(*this) + bytes_.capacity() + offsets_.capacity() * sizeof(uint32_t) +
                 plain_.capacity() * sizeof(PlainToken) + plain_bits_.capacity() * sizeof(uint32_t) +
                 start_tokens_.capacity() * sizeof(StartToken) +
                 specials_.capacity() * sizeof(std::pair<std::string, TokenId>);
  for (const StartToken& token : start_tokens_) bytes += token.bytes.capacity() > 15 ? token.bytes.capacity() : 0;
  return static_cast<int64_t>(bytes) + all_.memory_bytes() + mixed_.memory_bytes();
}

}  // namespace nunspark::text
