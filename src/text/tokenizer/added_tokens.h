// Tokens that are recognised in the text itself, before and after it is normalised ("<|im_start|>" and the like).
#ifndef NUNSPARK_TEXT_TOKENIZER_ADDED_TOKENS_H_
#define NUNSPARK_TEXT_TOKENIZER_ADDED_TOKENS_H_

#include <bitset>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/tokenizer/double_array.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/work_limit.h"

namespace nunspark::text {

struct AddedToken {
  std::string content;
  bool special = false;      // leaves the text when specials are skipped
  bool single_word = false;  // counts only between characters that are no word characters
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // ... and after it
  bool normalized = false;   // is looked for in the normalised text
  std::string text;          // what the id decodes to: the content, normalised where `normalized` says so
};

// A part of a text: a token that was recognised, or text between tokens.
struct Segment {
  TokenId id;  // kNoToken for text
  Span span;
};

class AddedTokens {
 public:
  // Adds tokens in the order of the file. A token whose text the vocabulary knows takes that id, others count on from
  // the largest id, whatever the file says: that is what the reference does.
  void Add(const std::vector<AddedToken>& tokens, const Vocabulary& vocabulary);

  // Adds a token under a given id. REQUIRES: 0 <= id <= kVocabIdMax.
  void AddWithId(const AddedToken& token, TokenId id);

  // Builds the search structures. Errors: as Normalizer::Run.
  Status Finish(const Normalizer& normalizer, const Vocabulary& vocabulary);

  enum class Stage { kRawText, kNormalizedText };
  // Appends the segments of `text`, leftmost and longest tokens first. An empty text has one empty segment.
  // Errors: as WorkLimit::Spend.
  Status Extract(Stage stage, std::string_view text, WorkLimit& work, std::vector<Segment>& segments) const;
  bool AnyFor(Stage stage) const { return !MatcherFor(stage).trie.empty(); }

  // By id, or nullptr.
  const AddedToken* ById(TokenId id) const;
  TokenId Find(std::string_view content) const;
  // Whether the token leaves the text when specials are skipped. Decided by its text,
  // as the reference does: a token that the normalizer changes is none.
  bool IsSpecialId(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < special_ids_.size() && special_ids_[static_cast<size_t>(id)];
  }
  TokenId id_end() const { return id_end_; }
  int64_t memory_bytes() const;

 private:
  struct Matcher {
    DoubleArray trie;
    std::vector<TokenId> ids;      // by value of the trie
    std::bitset<256> first_bytes;  // of the patterns
  };
  const Matcher& MatcherFor(Stage stage) const { return stage == Stage::kRawText ? raw_ : normalized_; }

  TokenId NextId(const Vocabulary& vocabulary) const;

  std::unordered_map<TokenId, AddedToken> by_id_;
  std::unordered_map<std::string, TokenId, TextHasher> by_content_;
  std::unordered_set<std::string, TextHasher> special_contents_;
  // In the order in which equal patterns win: specials first.
  std::vector<AddedToken> specials_;
  std::vector<AddedToken> others_;
  std::vector<bool> special_ids_;
  TokenId id_max_ = kNoToken;  // of by_content_
  TokenId id_end_ = 0;
  Matcher raw_;
  Matcher normalized_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_ADDED_TOKENS_H_
