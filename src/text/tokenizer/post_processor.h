// Post-processors: the special tokens around one text or a pair of texts.
#ifndef NUNSPARK_TEXT_TOKENIZER_POST_PROCESSOR_H_
#define NUNSPARK_TEXT_TOKENIZER_POST_PROCESSOR_H_

#include <span>
#include <vector>

#include "text/tokenizer/json_section.h"
#include "text/tokenizer/tokenizer.h"

namespace nunspark::text {

class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing

  // `section` is the file's "post_processor". Errors: kDataLoss, kUnsupported.
  static Result<PostProcessor> FromJson(const JsonSection& section);
  // `before` A `after`, and for pairs `before` A `after` `before` B `after`.
  static PostProcessor Surround(std::vector<TokenId> before, std::vector<TokenId> after);

  // Appends the whole. Without specials the order of the texts is still the template's.
  void Run(std::span<const TokenId> a, AddSpecials add_specials, std::vector<TokenId>& out) const;
  void RunPair(std::span<const TokenId> a, std::span<const TokenId> b, AddSpecials add_specials,
               std::vector<TokenId>& out) const;

 private:
  struct Item {
    enum class Kind { kTextA, kTextB, kSpecials } kind;
    std::vector<TokenId> ids;  // of kSpecials
  };
  using Template = std::vector<Item>;

  Status Read(const JsonSection& section, int depth);
  Status ReadTemplates(const JsonSection& section);
  Status ReadClsSep(const JsonSection& section, int separators_between);
  static Result<Template> ReadTemplate(const JsonSection& section, std::string_view key);

  static void Fill(const Template& items, std::span<const TokenId> a, std::span<const TokenId> b,
                   AddSpecials add_specials, std::vector<TokenId>& out);

  Template single_{{Item::Kind::kTextA, {}}};
  Template pair_{{Item::Kind::kTextA, {}}, {Item::Kind::kTextB, {}}};
  bool has_template_ = false;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_TOKENIZER_POST_PROCESSOR_H_
