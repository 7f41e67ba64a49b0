#include "text/tokenizer/added_tokens.h"

#include <algorithm>

#include "text/tokenizer/valid_utf8.h"
#include "text/unicode/unicode.h"

namespace nunspark::text {
namespace {

bool SameToken(const AddedToken& a, const AddedToken& b) { return a.content == b.content; }

bool StartsWithWord(std::string_view text) {
  uint32_t bytes = 0;
  return !text.empty() && IsWordCharacter(DecodeValidUtf8(text.data(), bytes));
}

size_t LastCharacterBegin(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && IsUtf8Continuation(text[at])) --at;
  return at;
}

bool EndsWithWord(std::string_view text) {
  return !text.empty() && StartsWithWord(text.substr(LastCharacterBegin(text)));
}

bool IsSpace(std::string_view text, size_t at, uint32_t& bytes) {
  return UnicodeTable::Get().In(DecodeValidUtf8(text.data() + at, bytes), kWhiteSpace);
}

// Where the white space that ends at `end` begins, as far as it lies behind `low`.
size_t SpaceBegin(std::string_view text, size_t low, size_t end) {
  while (end > low) {
    const size_t begin = LastCharacterBegin(text.substr(0, end));
    uint32_t bytes = 0;
    if (!IsSpace(text, begin, bytes)) break;
    end = begin;
  }
  return end;
}

size_t SpaceEnd(std::string_view text, size_t at) {
  uint32_t bytes = 0;
  while (at < text.size() && IsSpace(text, at, bytes)) at += bytes;
  return at;
}

}  // namespace

TokenId AddedTokens::NextId(const Vocabulary& vocabulary) const {
  const TokenId vocab_size = static_cast<TokenId>(vocabulary.size());
  return id_max_ >= vocab_size ? id_max_ + 1 : vocab_size;
}

void AddedTokens::Add(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto known = by_content_.find(token.content);
    if (known != by_content_.end() && SameToken(by_id_.at(known->second), token)) continue;
    TokenId id = vocabulary.Find(token.content);
    if (id == kNoToken) id = NextId(vocabulary);
    if (id <= kVocabIdMax) AddWithId(token, id);
  }
}

void AddedTokens::AddWithId(const AddedToken& token, TokenId id) {
  by_content_[token.content] = id;
  by_id_[id] = token;
  by_id_[id].text = token.content;
  id_max_ = std::max(id_max_, id);
  id_end_ = std::max(id_end_, id + 1);
  if (token.special) {
    if (special_contents_.insert(token.content).second) specials_.push_back(token);
  } else {
    others_.push_back(token);
  }
}

Status AddedTokens::Finish(const Normalizer& normalizer, const Vocabulary& vocabulary) {
  std::vector<DoubleArray::Key> raw_keys;
  std::vector<DoubleArray::Key> normalized_keys;
  std::vector<std::string> normalized_texts;
  normalized_texts.reserve(specials_.size() + others_.size());  // keys borrow from it
  WorkLimit work;                                               // for all of them
  for (const std::vector<AddedToken>* tokens : {&specials_, &others_}) {
    for (const AddedToken& token : *tokens) {
      Matcher& matcher = token.normalized ? normalized_ : raw_;
      std::vector<DoubleArray::Key>& keys = token.normalized ? normalized_keys : raw_keys;
      std::string_view pattern = token.content;
      if (token.normalized) {
        std::string storage;
        ASSIGN_OR_RETURN(const Normalizer::Normalized normal, normalizer.Run(token.content, work, storage));
        pattern = normalized_texts.emplace_back(normal.text);
        // The reference decodes such a token to what it is looked for as.
        by_id_.at(by_content_.at(token.content)).text = normal.text;
      }
      if (pattern.empty()) continue;
      matcher.first_bytes.set(static_cast<uint8_t>(pattern[0]));
      keys.push_back({pattern, static_cast<int32_t>(matcher.ids.size())});
      matcher.ids.push_back(by_content_.at(token.content));
    }
  }
  special_ids_.assign(static_cast<size_t>(std::max(id_end_, vocabulary.id_end())), false);
  for (const auto& [id, token] : by_id_) special_ids_[static_cast<size_t>(id)] = special_contents_.contains(token.text);
  for (const std::string& content : special_contents_) {
    const TokenId id = vocabulary.Find(content);
    if (id != kNoToken && !by_id_.contains(id)) special_ids_[static_cast<size_t>(id)] = true;
  }
  raw_.trie.Build(std::move(raw_keys));
  normalized_.trie.Build(std::move(normalized_keys));
  return Status();
}

Status AddedTokens::Extract(Stage stage, std::string_view text, WorkLimit& work, std::vector<Segment>& segments) const {
  const Matcher& matcher = MatcherFor(stage);
  const uint32_t size = static_cast<uint32_t>(text.size());
  if (text.empty() || matcher.trie.empty()) {
    segments.push_back({kNoToken, {0, size}});
    return Status();
  }
  size_t text_begin = 0;  // of what no segment holds yet
  size_t space_end = 0;   // of the last white space that a token swallowed
  for (size_t at = 0; at < text.size();) {
    if (!matcher.first_bytes[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    size_t bytes = 0;
    int32_t value = 0;
    const size_t steps = matcher.trie.FindPrefixes(text.substr(at), [&](size_t length, int32_t key) {
      bytes = length;
      value = key;
    });
    RETURN_IF_ERROR(work.Spend(steps));
    if (bytes == 0) {
      ++at;
      continue;
    }
    const TokenId id = matcher.ids[static_cast<size_t>(value)];
    const AddedToken& token = by_id_.at(id);
    size_t begin = at;
    size_t end = at + bytes;
    at = end;
    if (token.single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token.lstrip) begin = std::max(SpaceBegin(text, text_begin, begin), text_begin);
    // Tokens may lie in the space that others have swallowed; it is looked at once.
    if (token.rstrip) end = space_end = end < space_end ? space_end : SpaceEnd(text, end);
    if (text_begin < begin) {
      segments.push_back({kNoToken, {static_cast<uint32_t>(text_begin), static_cast<uint32_t>(begin)}});
    }
    // A token that lies in space which the token before has swallowed counts again - unless its own lstrip leaves
    // nothing of it. Odd, but that is how the reference has it.
    if (begin < end) segments.push_back({id, {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)}});
    text_begin = end;
  }
  if (text_begin != text.size()) segments.push_back({kNoToken, {static_cast<uint32_t>(text_begin), size}});
  return Status();
}

const AddedToken* AddedTokens::ById(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &found->second;
}

TokenId AddedTokens::Find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? kNoToken : found->second;
}

int64_t AddedTokens::memory_bytes() const {
  // A map node and its strings, roughly.
  constexpr size_t kBytesPerToken = 4 * (sizeof(AddedToken) + 32);
  return static_cast<int64_t>(by_id_.size() * kBytesPerToken) + raw_.trie.memory_bytes() +
         normalized_.trie.memory_bytes();
}

}  // namespace nunspark::text
