// tokenizer.json. The large parts (vocabulary, merges) are read in one pass without a tree; the small ones become
// trees.
#include <array>

#include <fmt/format.h>
#include <simdjson.h>

#include "base/check.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/load.h"
#include "text/tokenizer/score.h"
#include "text/tokenizer/unigram.h"

namespace nunspark::text {
namespace {

namespace od = simdjson::ondemand;

constexpr size_t kAddedTokensMax = 1 << 20;
// A part that becomes a tree; only added tokens and character maps come near.
constexpr size_t kPartBytesMax = size_t{64} << 20;

std::string_view TypeName(od::json_type type) {
  switch (type) {
    case od::json_type::array: return "array";
    case od::json_type::object: return "object";
    case od::json_type::number: return "number";
    case od::json_type::string: return "string";
    case od::json_type::boolean: return "boolean";
    case od::json_type::null: return "null";
  }
  return "something else";
}

// Everything under "model", as found.
struct ModelFields {
  std::string type;
  bool has_vocab = false;
  bool has_merges = false;
  std::vector<UnigramPiece> pieces;  // Unigram: vocab is a list
  std::vector<MergeRule> rules;
  std::string_view merges_json;  // merges that came before the vocabulary
  Json::Object options;          // the rest
};

// A merge rule whose tokens are not looked up yet.
struct WaitingRule {
  std::string_view left;
  std::string_view right;
  uint64_t left_hash;
  uint64_t right_hash;
  uint32_t index;
};
constexpr size_t kLookupBlock = 32;

class Reader {
 public:
  Reader(const std::string& content, std::string_view what) : content_(content), what_(what) {}

  Result<std::unique_ptr<PipelineTokenizer>> Read() {
    od::parser parser;
    od::document document;
    RETURN_IF_ERROR(
        Check(parser.iterate(content_.data(), content_.size(), content_.capacity()).get(document), "the file"));
    od::object top;
    RETURN_IF_ERROR(Check(document.get_object().get(top), "the file (an object is expected)"));
    for (auto field_result : top) {
      od::field field;
      RETURN_IF_ERROR(Check(std::move(field_result).get(field), "the file"));
      std::string_view key_view;
      RETURN_IF_ERROR(Check(field.unescaped_key().get(key_view), "a key"));
      const std::string key(key_view);
      if (key == "model") {
        RETURN_IF_ERROR(ReadModel(field.value()));
      } else if (key == "added_tokens" || key == "normalizer" || key == "pre_tokenizer" || key == "post_processor" ||
                 key == "decoder") {
        ASSIGN_OR_RETURN(Json part, ReadTree(field.value(), key));
        parts_json_.Set(key, std::move(part));
      }
    }
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
      return Malformed("the file: expected its end after the object, found more");
    return Assemble();
  }

 private:
  Status Malformed(std::string_view reason) const { return DataLossError(fmt::format("{}: {}", what_, reason)); }

  Status Check(simdjson::error_code error, std::string_view place) const {
    if (error == simdjson::SUCCESS) return Status();
    return Malformed(fmt::format("{}: not valid JSON: {}", place, simdjson::error_message(error)));
  }

  template <typename T>
  Status Expect(simdjson::simdjson_result<T> result, std::string_view place, std::string_view expected, T& out) const {
    const simdjson::error_code error = std::move(result).get(out);
    if (error == simdjson::SUCCESS) return Status();
    if (error == simdjson::INCORRECT_TYPE)
      return Malformed(fmt::format("{}: expected {}, found another kind", place, expected));
    return Check(error, place);
  }

  Result<Json> ReadTree(od::value value, std::string_view place) const {
    std::string_view text;
    RETURN_IF_ERROR(Check(simdjson::to_json_string(value).get(text), place));
    if (text.size() > kPartBytesMax) return Malformed(fmt::format("{}: longer than {} bytes", place, kPartBytesMax));
    // A scalar is no document for the parser, so it travels in an array.
    ASSIGN_OR_RETURN(Json wrapped, ParseJson(fmt::format("[{}]", text), fmt::format("{}: {}", what_, place)));
    return std::move(wrapped.as_array().front());
  }

  // -- model ---------------------------------------------------------------------------------------------------------

  Status ReadModel(od::value value) {
    od::object object;
    RETURN_IF_ERROR(Expect(value.get_object(), "model", "object", object));
    for (auto field_result : object) {
      od::field field;
      RETURN_IF_ERROR(Check(std::move(field_result).get(field), "model"));
      std::string_view key_view;
      RETURN_IF_ERROR(Check(field.unescaped_key().get(key_view), "a key of model"));
      const std::string key(key_view);
      if (key == "vocab") {
        RETURN_IF_ERROR(ReadVocab(field.value()));
      } else if (key == "merges") {
        if (fields_.has_merges) return Malformed("model.merges: expected once, found twice");
        fields_.has_merges = true;
        if (fields_.has_vocab) {
          RETURN_IF_ERROR(ReadMerges(field.value()));
        } else {
          RETURN_IF_ERROR(Check(simdjson::to_json_string(field.value()).get(fields_.merges_json), "model.merges"));
        }
      } else {
        ASSIGN_OR_RETURN(Json part, ReadTree(field.value(), "model." + key));
        fields_.options.emplace_back(key, std::move(part));
      }
    }
    return Status();
  }

  Status ReadVocab(od::value value) {
    if (fields_.has_vocab) return Malformed("model.vocab: expected once, found twice");
    fields_.has_vocab = true;
    od::json_type type = od::json_type::null;
    RETURN_IF_ERROR(Check(value.type().get(type), "model.vocab"));
    if (type == od::json_type::object) return ReadVocabObject(value);
    if (type == od::json_type::array) return ReadVocabList(value);
    return Malformed(fmt::format("model.vocab: expected object or array, found {}", TypeName(type)));
  }

  Status ReadVocabObject(od::value value) {
    od::object object;
    RETURN_IF_ERROR(Check(value.get_object().get(object), "model.vocab"));
    // A token takes some 20 bytes in the file and merges twice that: a guess that saves growing.
    parts_.vocabulary->Reserve(content_.size() / 80, content_.size() / 12);
    for (auto field_result : object) {
      od::field field;
      RETURN_IF_ERROR(Check(std::move(field_result).get(field), "model.vocab"));
      std::string_view token;
      RETURN_IF_ERROR(Check(field.unescaped_key().get(token), "a key of model.vocab"));
      uint64_t id = 0;
      if (field.value().get_uint64().get(id) != simdjson::SUCCESS || id > kVocabIdMax) {
        return Malformed(fmt::format("model.vocab.{}: expected an id from 0 to {}, found another value",
                                     JsonQuote(token), kVocabIdMax));
      }
      parts_.vocabulary->Insert(token, static_cast<TokenId>(id));
    }
    return Status();
  }

  Status ReadVocabList(od::value value) {
    od::array array;
    RETURN_IF_ERROR(Check(value.get_array().get(array), "model.vocab"));
    for (auto item_result : array) {
      const std::string place = "model.vocab[" + std::to_string(fields_.pieces.size()) + "]";
      if (fields_.pieces.size() > kVocabIdMax)
        return Malformed(fmt::format("model.vocab: expected at most {} pieces", kVocabIdMax));
      od::array pair;
      RETURN_IF_ERROR(Expect(item_result.get_array(), place, "array of text and score", pair));
      int count = 0;
      UnigramPiece piece;
      for (auto part : pair) {
        if (count == 0) {
          std::string_view text;
          RETURN_IF_ERROR(Expect(part.get_string(), place, "text", text));
          piece.id = static_cast<TokenId>(fields_.pieces.size());
          parts_.vocabulary->Insert(text, piece.id);
        } else if (count == 1) {
          od::value number;
          RETURN_IF_ERROR(Check(std::move(part).get(number), place));
          std::string_view token = number.raw_json_token();
          token = token.substr(0, token.find_first_not_of("+-.0123456789eE"));
          const std::optional<double> score = ParseScore(token);
          if (!score.has_value()) return Malformed(fmt::format("{}: expected a score, found another value", place));
          piece.score = *score;
        }
        ++count;
      }
      if (count != 2) return Malformed(fmt::format("{}: expected 2 elements, found {}", place, count));
      fields_.pieces.push_back(piece);
    }
    return Status();
  }

  // Merges are "left right", or [left, right] in newer files.
  Status ReadMerges(od::value value) {
    od::array array;
    RETURN_IF_ERROR(Expect(value.get_array(), "model.merges", "array", array));
    size_t index = 0;
    for (auto item_result : array) {
      od::value item;
      RETURN_IF_ERROR(Check(std::move(item_result).get(item), "model.merges"));
      if (index >= kMergesMax) return Malformed(fmt::format("model.merges: expected at most {}", kMergesMax));
      RETURN_IF_ERROR(ReadMerge(item, index++));
    }
    return LookUpRules();
  }

  Status ReadMerge(od::value item, size_t index) {
    od::json_type type = od::json_type::null;
    RETURN_IF_ERROR(Check(item.type().get(type), "model.merges"));
    if (type == od::json_type::string) {
      std::string_view line;
      RETURN_IF_ERROR(Check(item.get_string().get(line), "model.merges"));
      if (line.starts_with("#version")) return Status();
      const size_t space = line.find(' ');
      if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
        return Malformed(fmt::format("model.merges[{}]: expected two tokens with a space between, found {}", index,
                                     JsonQuote(line)));
      }
      return AddRule(line.substr(0, space), line.substr(space + 1), index);
    }
    od::array pair;
    RETURN_IF_ERROR(Expect(item.get_array(), Place(index), "string or array of two strings", pair));
    std::string_view sides[2];
    size_t count = 0;
    for (auto side : pair) {
      std::string_view text;
      RETURN_IF_ERROR(Expect(side.get_string(), Place(index), "string", text));
      if (count < 2) sides[count] = text;
      ++count;
    }
    if (count != 2) return Malformed(fmt::format("{}: expected 2 tokens, found {}", Place(index), count));
    return AddRule(sides[0], sides[1], index);
  }

  static std::string Place(size_t index) { return "model.merges[" + std::to_string(index) + "]"; }

  // Rules are looked up in blocks, so that their memory accesses overlap. The texts live as long as the parser.
  Status AddRule(std::string_view left, std::string_view right, size_t index) {
    waiting_.push_back({left, right, HashText(left), HashText(right), static_cast<uint32_t>(index)});
    parts_.vocabulary->Prefetch(waiting_.back().left_hash);
    parts_.vocabulary->Prefetch(waiting_.back().right_hash);
    return waiting_.size() < kLookupBlock ? Status() : LookUpRules();
  }

  Status LookUpRules() {
    for (const WaitingRule& rule : waiting_) {
      const TokenId left = parts_.vocabulary->Find(rule.left, rule.left_hash);
      const TokenId right = parts_.vocabulary->Find(rule.right, rule.right_hash);
      if (left == kNoToken || right == kNoToken) {
        return Malformed(fmt::format("{}: expected tokens of the vocabulary, found {}", Place(rule.index),
                                     JsonQuote(left == kNoToken ? rule.left : rule.right)));
      }
      // The product is looked up once all options are known (a prefix may have to be cut off).
      fields_.rules.push_back({left, right, kNoToken, rule.index});
    }
    waiting_.clear();
    return Status();
  }

  // -- assembly ------------------------------------------------------------------------------------------------------

  JsonSection SectionOf(std::string_view key, const Json& value) const {
    return JsonSection(value, fmt::format("{}: {}", what_, key));
  }

  Result<std::unique_ptr<PipelineTokenizer>> Assemble() {
    if (!fields_.has_vocab) return Malformed("expected a model with a vocab, found none");
    if (!fields_.merges_json.empty()) {
      od::parser parser;
      od::document document;
      const char* const end = content_.data() + content_.size() + kJsonPadding;
      RETURN_IF_ERROR(Check(parser
                                .iterate(fields_.merges_json.data(), fields_.merges_json.size(),
                                         static_cast<size_t>(end - fields_.merges_json.data()))
                                .get(document),
                            "model.merges"));
      od::value value;
      RETURN_IF_ERROR(Check(document.get_value().get(value), "model.merges"));
      RETURN_IF_ERROR(ReadMerges(value));
    }
    const Json& json = parts_json_;
    const auto present = [&json](std::string_view key) -> const Json* {
      const Json* part = json.Find(key);
      return part == nullptr || part->is_null() ? nullptr : part;
    };
    if (const Json* part = present("normalizer")) {
      ASSIGN_OR_RETURN(parts_.normalizer, Normalizer::FromJson(SectionOf("normalizer", *part)));
    }
    if (const Json* part = present("pre_tokenizer")) {
      ASSIGN_OR_RETURN(parts_.pre_tokenizer, PreTokenizer::FromJson(SectionOf("pre_tokenizer", *part)));
    }
    if (const Json* part = present("post_processor")) {
      ASSIGN_OR_RETURN(parts_.post_processor, PostProcessor::FromJson(SectionOf("post_processor", *part)));
    }
    if (const Json* part = present("decoder")) {
      ASSIGN_OR_RETURN(parts_.decoder, Decoder::FromJson(SectionOf("decoder", *part)));
    }
    RETURN_IF_ERROR(MakeModel());
    if (present("added_tokens") != nullptr) RETURN_IF_ERROR(ReadAddedTokens());
    RETURN_IF_ERROR(parts_.added.Finish(parts_.normalizer, *parts_.vocabulary));
    return std::make_unique<PipelineTokenizer>(std::move(parts_));
  }

  Status ReadAddedTokens() {
    ASSIGN_OR_RETURN(const std::vector<JsonSection> items,
                     JsonSection(parts_json_, std::string(what_)).Array("added_tokens", kAddedTokensMax));
    std::vector<AddedToken> tokens;
    for (const JsonSection& item : items) {
      AddedToken token;
      ASSIGN_OR_RETURN(token.content, item.String("content"));
      ASSIGN_OR_RETURN(token.special, item.BoolOr("special", false));
      ASSIGN_OR_RETURN(token.single_word, item.BoolOr("single_word", false));
      ASSIGN_OR_RETURN(token.lstrip, item.BoolOr("lstrip", false));
      ASSIGN_OR_RETURN(token.rstrip, item.BoolOr("rstrip", false));
      ASSIGN_OR_RETURN(token.normalized, item.BoolOr("normalized", !token.special));
      tokens.push_back(std::move(token));
    }
    parts_.added.Add(tokens, *parts_.vocabulary);
    return Status();
  }

  Status MakeModel() {
    parts_.vocabulary->ShrinkToFit();
    const Json options(std::move(fields_.options));
    const JsonSection section(options, fmt::format("{}: model", what_));
    const std::string_view guess = fields_.has_merges ? "BPE" : "Unigram";
    ASSIGN_OR_RETURN(const std::string type, section.StringOr("type", guess));
    if (type == "BPE") return MakeBpe(section);
    if (type == "Unigram") return MakeUnigram(section);
    return section.Unsupported(fmt::format("type: this build knows BPE and Unigram, not '{}'", type));
  }

  Status MakeBpe(const JsonSection& section) {
    if (!fields_.has_merges) return section.Malformed("expected merges, found none");
    BpeOptions options;
    ASSIGN_OR_RETURN(options.continuing_subword_prefix, section.StringOr("continuing_subword_prefix", ""));
    ASSIGN_OR_RETURN(options.end_of_word_suffix, section.StringOr("end_of_word_suffix", ""));
    ASSIGN_OR_RETURN(options.fuse_unknown, section.BoolOr("fuse_unk", false));
    ASSIGN_OR_RETURN(options.byte_fallback, section.BoolOr("byte_fallback", false));
    ASSIGN_OR_RETURN(options.ignore_merges, section.BoolOr("ignore_merges", false));
    const std::optional<JsonSection> dropout = section.Member("dropout");
    if (dropout.has_value() && dropout->value() != Json(0) && dropout->value() != Json(0.0)) {
      return section.Unsupported("dropout: ids would be random; set it to null");
    }
    if (section.Member("unk_token").has_value()) {
      ASSIGN_OR_RETURN(const std::string unknown, section.String("unk_token"));
      const TokenId id = parts_.vocabulary->Find(unknown);
      if (id != kNoToken) options.unknown = id;
      options.unknown_is_missing = id == kNoToken;
    }
    RETURN_IF_ERROR(FindProducts(options.continuing_subword_prefix.size()));

    const bool has_affixes = !options.continuing_subword_prefix.empty() || !options.end_of_word_suffix.empty();
    if (parts_.pre_tokenizer.EndsWithByteLevel() && !has_affixes && !options.byte_fallback) {
      options.unit = BpeUnit::kByte;
      parts_.raw_keys = RawKeysOf(*parts_.vocabulary);
      parts_.pre_tokenizer.KeepRawBytes();
    }
    const Vocabulary& keys = options.unit == BpeUnit::kByte ? *parts_.raw_keys : *parts_.vocabulary;
    parts_.model = std::make_unique<Bpe>(keys, fields_.rules, std::move(options));
    return Status();
  }

  Status FindProducts(size_t prefix_bytes) {
    std::array<std::string, kLookupBlock> products;
    std::array<uint64_t, kLookupBlock> hashes;
    const Vocabulary& vocabulary = *parts_.vocabulary;
    for (size_t begin = 0; begin < fields_.rules.size(); begin += kLookupBlock) {
      const size_t count = std::min(kLookupBlock, fields_.rules.size() - begin);
      for (size_t i = 0; i < count; ++i) {
        const MergeRule& rule = fields_.rules[begin + i];
        const std::string_view right = vocabulary.Text(rule.right);
        products[i] = vocabulary.Text(rule.left);
        products[i] += right.substr(std::min(prefix_bytes, right.size()));
        hashes[i] = HashText(products[i]);
        vocabulary.Prefetch(hashes[i]);
      }
      for (size_t i = 0; i < count; ++i) {
        MergeRule& rule = fields_.rules[begin + i];
        rule.result = vocabulary.Find(products[i], hashes[i]);
        if (rule.result == kNoToken) {
          return Malformed(fmt::format("{}: expected its product in the vocabulary, found no {}", Place(rule.rank),
                                       JsonQuote(products[i])));
        }
      }
    }
    return Status();
  }

  Status MakeUnigram(const JsonSection& section) {
    if (fields_.pieces.empty()) return section.Malformed("vocab: expected pieces with scores, found none");
    UnigramOptions options;
    if (section.Member("unk_id").has_value()) {
      ASSIGN_OR_RETURN(const int64_t id, section.Int("unk_id", 0, static_cast<int64_t>(fields_.pieces.size()) - 1));
      options.unknown = static_cast<TokenId>(id);
    }
    ASSIGN_OR_RETURN(options.byte_fallback, section.BoolOr("byte_fallback", false));
    parts_.model = std::make_unique<Unigram>(*parts_.vocabulary, fields_.pieces, options);
    return Status();
  }

  const std::string& content_;
  const std::string_view what_;
  Json parts_json_{Json::Object{}};
  ModelFields fields_;
  std::vector<WaitingRule> waiting_;
  PipelineParts parts_;
};

}  // namespace

Result<std::unique_ptr<PipelineTokenizer>> LoadTokenizerJson(const std::string& content, std::string_view what) {
  static_assert(kJsonPadding >= simdjson::SIMDJSON_PADDING);
  CHECK(content.capacity() >= content.size() + kJsonPadding);
  return Reader(content, what).Read();
}

}  // namespace nunspark::text
