// GrammarVocabulary: a tokenizer's tokens as bytes, arranged for finding those that a grammar allows.
//
// Built once per tokenizer, immutable, shared by all grammars and threads.
#ifndef NUNSPARK_TEXT_GRAMMAR_GRAMMAR_VOCABULARY_H_
#define NUNSPARK_TEXT_GRAMMAR_GRAMMAR_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nunspark/status.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

// Texts as a tree, its nodes in the order of a walk that visits parents first: a walk reads memory from front to back.
struct TokenTrie {
  struct Node {
    uint32_t after;        // the first node that is not below this one
    uint32_t first_token;  // into `tokens`; the node's tokens end where those of the next node begin
    uint16_t depth;        // 1 for the first byte
    uint8_t byte;
  };

  // `tokens` by text; sorted in place.
  static TokenTrie Build(std::vector<std::pair<std::string_view, TokenId>>& tokens);
  std::span<const TokenId> TokensOf(size_t node) const {
    const size_t end = node + 1 < nodes.size() ? nodes[node + 1].first_token : tokens.size();
    return std::span(tokens).subspan(nodes[node].first_token, end - nodes[node].first_token);
  }
  int64_t memory_bytes() const {
    return static_cast<int64_t>(nodes.capacity() * sizeof(Node) + tokens.capacity() * sizeof(TokenId));
  }

  std::vector<Node> nodes;
  std::vector<TokenId> tokens;
};

class GrammarVocabulary {
 public:
  struct Options {
    std::vector<TokenId> end_tokens{};    // end an output: allowed exactly where the grammar may end
    std::vector<TokenId> spelled_only{};  // markup that is no special token ("<tool_call>"): never inside a JSON string
  };

  // Special tokens and tokens without text are never allowed, unless a literal names them.
  // Errors: kUnsupported for tokenizers whose tokens have no bytes of their own; kInvalidArgument for ids outside.
  static Result<std::shared_ptr<const GrammarVocabulary>> Create(const Tokenizer& tokenizer, Options options);

  TokenId size() const { return static_cast<TokenId>(offsets_.size() - 1); }
  // What a token adds to a text that has begun, and to one that begins with it: the first may lose a space. Empty for
  // tokens that are never allowed by their text.
  std::string_view Bytes(TokenId id) const {
    return std::string_view(bytes_).substr(offsets_[static_cast<size_t>(id)],
                                           offsets_[static_cast<size_t>(id) + 1] - offsets_[static_cast<size_t>(id)]);
  }
  std::string_view BytesAtStart(TokenId id) const;
  bool IsEnd(TokenId id) const;
  bool IsSpelledOnly(TokenId id) const;
  std::span<const TokenId> end_tokens() const { return options_.end_tokens; }
  std::span<const TokenId> spelled_only() const { return options_.spelled_only; }
  uint32_t longest_bytes() const { return longest_bytes_; }

  // The special token that `text` begins with, the longest; and how many bytes that is.
  std::optional<std::pair<TokenId, size_t>> SpecialAt(std::string_view text) const;

  const TokenTrie& all() const { return all_; }
  // Tokens that are not made of plain characters alone (IsPlainChar), complete ones.
  const TokenTrie& mixed() const { return mixed_; }
  struct PlainToken {
    TokenId id;
    uint32_t chars;
  };
  // The others, by falling number of characters, and their set. bits: token t is bit t % 32 of word t / 32.
  std::span<const PlainToken> plain() const { return plain_; }
  std::span<const uint32_t> plain_bits() const { return plain_bits_; }
  // Tokens that lose their space at the start of a text, with what is left of them.
  struct StartToken {
    TokenId id;
    std::string bytes;
  };
  std::span<const StartToken> start_tokens() const { return start_tokens_; }

  // Which bytes are a token of their own.
  bool HasByte(uint8_t byte) const { return single_bytes_[byte]; }

  int64_t memory_bytes() const;

 private:
  Options options_;
  std::string bytes_;
  std::vector<uint32_t> offsets_;
  TokenTrie all_;
  TokenTrie mixed_;
  std::vector<PlainToken> plain_;
  std::vector<uint32_t> plain_bits_;
  std::vector<StartToken> start_tokens_;                   // by id
  std::vector<std::pair<std::string, TokenId>> specials_;  // longest first
  std::vector<bool> single_bytes_ = std::vector<bool>(256);
  uint32_t longest_bytes_ = 0;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_GRAMMAR_VOCABULARY_H_
