// The small steps of a pipeline: normalizers, pre-tokenizers, post-processors, decoders, added tokens.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/tokenizer/testing.h"

namespace nunspark::text {
namespace {

using testing::BpeModel;
using testing::JsonOf;
using testing::LoadJsonText;
using testing::Parts;
using testing::TokensOf;
using Texts = std::vector<std::string>;

std::string Normalize(std::string_view json, std::string_view text) {
  const Json value = std::move(ParseJson(json, "normalizer")).value();
  const Result<Normalizer> normalizer = Normalizer::FromJson(JsonSection(value, "test: normalizer"));
  if (!normalizer.ok()) return "error: " + normalizer.status().message();
  std::string storage;
  WorkLimit work;
  const Result<Normalizer::Normalized> normal = normalizer->Run(text, work, storage);
  return normal.ok() ? std::string(normal->text) : "error: " + normal.status().message();
}

Texts PreTokenize(std::string_view json, std::string_view text) {
  const Json value = std::move(ParseJson(json, "pre_tokenizer")).value();
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::FromJson(JsonSection(value, "test: pre_tokenizer"));
  if (!pre_tokenizer.ok()) return {"error: " + pre_tokenizer.status().message()};
  PieceList list;
  const Status status = pre_tokenizer->Run(text, 1, list);
  if (!status.ok()) return {"error: " + status.message()};
  Texts pieces;
  for (const Span& piece : list.pieces) pieces.emplace_back(list.text.substr(piece.begin, piece.end - piece.begin));
  return pieces;
}

std::string Decode(std::string_view json, const Texts& tokens) {
  const Json value = std::move(ParseJson(json, "decoder")).value();
  const Result<Decoder> decoder = Decoder::FromJson(JsonSection(value, "test: decoder"));
  if (!decoder.ok()) return "error: " + decoder.status().message();
  std::string text;
  const std::unique_ptr<DecodeRun> run = decoder->NewRun();
  for (const std::string& token : tokens) run->Push(token, text);
  run->Finish(text);
  return text;
}

TEST(Normalizer, RewritesAsItsTypeSays) {
  EXPECT_EQ(Normalize(R"({"type":"NFC"})", "e\u0301ﬁ"), "éﬁ");
  EXPECT_EQ(Normalize(R"({"type":"NFD"})", "é각"), "e\u0301\u1100\u1161\u11A8");
  EXPECT_EQ(Normalize(R"({"type":"NFKC"})", "ﬁ①e\u0301"), "fi1é");
  EXPECT_EQ(Normalize(R"({"type":"NFKD"})", "ﬁé"), "fie\u0301");
  EXPECT_EQ(Normalize(R"({"type":"Lowercase"})", "ÀBİ"), "àbi\u0307");
  EXPECT_EQ(Normalize(R"({"type":"Prepend","prepend":"_"})", "a"), "_a");
  EXPECT_EQ(Normalize(R"({"type":"Prepend","prepend":"_"})", ""), "");
  EXPECT_EQ(Normalize(R"({"type":"Replace","pattern":{"String":" "},"content":"_"})", " a  b"), "_a__b");
  EXPECT_EQ(Normalize(R"({"type":"Replace","pattern":{"Regex":" {2,}"},"content":" "})", "a    b c"), "a b c");
  EXPECT_EQ(Normalize(R"({"type":"Strip","strip_left":true,"strip_right":false})", "\u3000 a "), "a ");
  EXPECT_EQ(Normalize(R"({"type":"Sequence","normalizers":[{"type":"NFD"},{"type":"Lowercase"}]})", "É"), "e\u0301");
}

TEST(Normalizer, LeavesCharactersAfterUnicode9Alone) {
  EXPECT_EQ(Normalize(R"({"type":"NFKC"})", "\u32FF"), "\u32FF");               // a square era name of Unicode 12
  EXPECT_EQ(Normalize(R"({"type":"NFD"})", "\U00011938"), "\U00011938");        // decomposes since Unicode 13
  EXPECT_EQ(Normalize(R"({"type":"NFC"})", "a\u0898\u0334"), "a\u0898\u0334");  // not reordered
}

TEST(Normalizer, LowercaseAndDigitsKnowUnicode17) {  // which the reference has from Rust's standard library
  EXPECT_EQ(Normalize(R"({"type":"Lowercase"})", "\uA7CE\uA7D2\uA7D4\U00016EA0\U00016EB8"),
            "\uA7CF\uA7D3\uA7D5\U00016EBB\U00016ED3");
  EXPECT_EQ(PreTokenize(R"({"type":"Digits","individual_digits":true})", "a\U00011DE1\U00016FF4b"),
            (Texts{"a", "\U00011DE1", "\U00016FF4", "b"}));
}

// Where the characters end that stand for the text's first one: what Metaspace's "first" goes by.
uint32_t OriginEnd(std::string_view json, std::string_view text) {
  const Json value = std::move(ParseJson(json, "normalizer")).value();
  std::string storage;
  WorkLimit work;
  return Normalizer::FromJson(JsonSection(value, "test"))->Run(text, work, storage)->origin_end;
}

TEST(Normalizer, FollowsTheFirstCharacter) {
  const std::string_view words = R"({"type":"Replace","pattern":{"Regex":"\\w+"},"content":"▁"})";
  EXPECT_EQ(OriginEnd(words, "a b"), 1u);
  EXPECT_EQ(OriginEnd(words, " ab"), 1u);
  EXPECT_EQ(OriginEnd(words, "ab"), 0u);  // all of a replacement stands for the last character that it replaces
  EXPECT_EQ(OriginEnd(R"({"type":"Replace","pattern":{"String":"a"},"content":""})", "ab"), 0u);
  EXPECT_EQ(OriginEnd(R"({"type":"Replace","pattern":{"String":"b"},"content":""})", "ab"), 1u);
  EXPECT_EQ(OriginEnd(R"({"type":"Strip","strip_left":true,"strip_right":true})", "a "), 1u);
  EXPECT_EQ(OriginEnd(R"({"type":"Strip","strip_left":true,"strip_right":true})", " a"), 0u);
  EXPECT_EQ(OriginEnd(R"({"type":"Sequence","normalizers":[{"type":"Prepend","prepend":" "},
      {"type":"Replace","pattern":{"String":" "},"content":"▁"}]})",
                      "ab"),
            4u);
}

TEST(Normalizer, NormalizesLocallyAsItDoesAsAWhole) {
  // Every pair of interesting characters, against forms made from single steps: NFC(NFD(x)) == NFC(x) and idempotence.
  const Texts parts = {"a",      "é",      "e",      "\u0301", "\u0316", "\u0345", "가", "\u1100",
                       "\u1161", "\u11A8", "\u0958", "\u212B", "ﬁ",      "\u3099", "か", "\u1E9B\u0323"};
  for (const std::string& a : parts) {
    for (const std::string& b : parts) {
      for (const std::string& c : parts) {
        const std::string text = a + b + c;
        const std::string nfc = Normalize(R"({"type":"NFC"})", text);
        EXPECT_EQ(nfc, Normalize(R"({"type":"NFC"})", Normalize(R"({"type":"NFD"})", text))) << text;
        EXPECT_EQ(nfc, Normalize(R"({"type":"NFC"})", nfc)) << text;
      }
    }
  }
}

TEST(PreTokenizer, CutsInAllBehaviours) {
  const auto split = [](const std::string& behavior, const std::string& invert) {
    return PreTokenize(
        R"({"type":"Split","pattern":{"String":"-"},"behavior":")" + behavior + R"(","invert":)" + invert + "}",
        "a--b-c");
  };
  EXPECT_EQ(split("Removed", "false"), (Texts{"a", "b", "c"}));
  EXPECT_EQ(split("Isolated", "false"), (Texts{"a", "-", "-", "b", "-", "c"}));
  EXPECT_EQ(split("MergedWithPrevious", "false"), (Texts{"a-", "-", "b-", "c"}));
  EXPECT_EQ(split("MergedWithNext", "false"), (Texts{"a", "-", "-b", "-c"}));
  EXPECT_EQ(split("Contiguous", "false"), (Texts{"a", "--", "b", "-", "c"}));
  EXPECT_EQ(split("Removed", "true"), (Texts{"-", "-", "-"}));
  EXPECT_EQ(split("MergedWithPrevious", "true"), (Texts{"a", "-", "-b", "-c"}));
}

TEST(PreTokenizer, CutsAsItsTypeSays) {
  EXPECT_EQ(PreTokenize(R"({"type":"Digits","individual_digits":true})", "a12"), (Texts{"a", "1", "2"}));
  EXPECT_EQ(PreTokenize(R"({"type":"Digits","individual_digits":false})", "a12b"), (Texts{"a", "12", "b"}));
  EXPECT_EQ(PreTokenize(R"({"type":"Punctuation","behavior":"Isolated"})", "a,b€"), (Texts{"a", ",", "b€"}));
  EXPECT_EQ(PreTokenize(R"({"type":"WhitespaceSplit"})", " a\u3000b-c "), (Texts{"a", "b-c"}));
  EXPECT_EQ(PreTokenize(R"({"type":"Whitespace"})", "ab-- c"), (Texts{"ab", "--", "c"}));
  EXPECT_EQ(PreTokenize(R"({"type":"ByteLevel","add_prefix_space":true,"use_regex":true})", "a bé"),
            (Texts{"Ġa", "ĠbÃ©"}));
  EXPECT_EQ(PreTokenize(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})", "a b"),
            (Texts{"▁a", "▁b"}));
  EXPECT_EQ(PreTokenize(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never","split":false})", "a b"),
            (Texts{"a▁b"}));
  EXPECT_EQ(
      PreTokenize(
          R"({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Metaspace","replacement":"_","prepend_scheme":"first"}]})",
          "a b"),
      (Texts{"_a", "b"}));
}

TEST(Decoder, UndoesWhatItsTypeSays) {
  EXPECT_EQ(Decode(R"({"type":"ByteLevel"})", {"ĠbÃ", "©", "<x y>"}), " bé<x y>");
  EXPECT_EQ(Decode(R"({"type":"ByteLevel"})", {"ð", "a"}), "\uFFFDa");
  EXPECT_EQ(
      Decode(R"({"type":"ByteFallback"})", {"a", "<0xE5>", "<0x8f>", "<0xab>", "b", "<0xE5>", "<0x8f>", "<0x+f>"}),
      "a叫b\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Decode(R"({"type":"Strip","content":"_","start":1,"stop":1})", {"__a_", "b__"}), "_ab_");
  EXPECT_EQ(
      Decode(R"({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})",
             {" a", " b"}),
      "a b");
  EXPECT_EQ(Decode(R"({"type":"Replace","pattern":{"String":"▁"},"content":" "})", {"▁a", "b"}), " ab");
  EXPECT_EQ(Decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always"})", {"▁a▁", "▁b"}), "a b");
  EXPECT_EQ(Decode(R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"never"})", {"▁a", "▁b"}), " a b");
}

TEST(Steps, UnknownTypesAndBadFieldsAreNamed) {
  EXPECT_EQ(Normalize(R"({"type":"Sequence","normalizers":[{"type":"Odd"}]})", ""),
            "error: test: normalizer.normalizers[0]: this build does not know the normalizer 'Odd'");
  EXPECT_EQ(Normalize(R"({"type":"Prepend","prepend":1})", ""),
            "error: test: normalizer.prepend: expected string, found integer");
  EXPECT_EQ(Normalize(R"({"type":"Precompiled","precompiled_charsmap":"AAAA"})", "").substr(0, 6), "error:");
  EXPECT_EQ(PreTokenize(R"({"type":"Split","pattern":{"Regex":"("},"behavior":"Removed"})", "")[0].substr(0, 43),
            "error: test: pre_tokenizer.pattern: not a v");
  EXPECT_EQ(PreTokenize(R"({"type":"Split","pattern":{"String":"a"},"behavior":"Odd"})", "")[0].substr(0, 6), "error:");
  EXPECT_EQ(PreTokenize(R"({"type":"Metaspace","replacement":"ab"})", "")[0].substr(0, 6), "error:");
  EXPECT_EQ(Decode(R"({"type":"Strip","content":"ab","start":1,"stop":0})", {}).substr(0, 6), "error:");
  EXPECT_EQ(Decode(R"({"kind":"Strip"})", {}), "error: test: decoder: expected a member 'type', found none");
}

// The texts "a" to "e" and " ", and the added tokens of a test.
Result<std::unique_ptr<PipelineTokenizer>> WithAdded(const std::string& added, const std::string& post = "null",
                                                     const std::string& normalizer = "null") {
  return LoadJsonText(JsonOf({.normalizer = normalizer,
                              .post_processor = post,
                              .added_tokens = added,
                              .model = BpeModel({"a", "b", "c", "d", "e", " ", "A", "."}, {})}));
}

TEST(AddedTokens, FlagsDecideWhatIsTaken) {
  const auto tokenizer = WithAdded(R"([{"content":"<x>","lstrip":true,"rstrip":true,"normalized":false,"special":true},
      {"content":"bc","single_word":true,"normalized":false}, {"content":"bcd","normalized":false}])");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "a <x>  b"), (Texts{"a", "<x>", "b"}));
  EXPECT_EQ(TokensOf(**tokenizer, "bc a bca bcd"), (Texts{"bc", " ", "a", " ", "b", "c", "a", " ", "bcd"}));
  EXPECT_EQ((*tokenizer)->Decode(*(*tokenizer)->Encode("a<x>b", AddSpecials::kNo), SkipSpecials::kYes), "a b");
}

TEST(AddedTokens, IdsGoOnFromTheVocabularyWhateverTheFileSays) {
  const auto tokenizer = WithAdded(R"([{"id":50,"content":"<x>"},{"id":3,"content":"b"},{"id":60,"content":"<y>"}])");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->FindToken("<x>"), 8);
  EXPECT_EQ((*tokenizer)->FindToken("b"), 1);
  EXPECT_EQ((*tokenizer)->FindToken("<y>"), 9);
  EXPECT_EQ((*tokenizer)->vocab_size(), 10);
  EXPECT_EQ((*tokenizer)->FindToken("none"), std::nullopt);
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  const auto tokenizer = WithAdded(R"([{"content":"AB","normalized":true},{"content":"CD","normalized":false}])",
                                   "null", R"({"type":"Lowercase"})");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*(*tokenizer)->Encode("aBcd", AddSpecials::kNo), (std::vector<TokenId>{8, 2, 3}));
  EXPECT_EQ(*(*tokenizer)->Encode("CD", AddSpecials::kNo), (std::vector<TokenId>{9}));
}

TEST(PostProcessor, PutsSpecialsAroundOneTextAndPairs) {
  const auto tokenizer =
      WithAdded("[]", R"({"type":"Sequence","processors":[{"type":"ByteLevel"},{"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"d","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "pair":[{"Sequence":{"id":"B","type_id":0}},{"SpecialToken":{"id":"d","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "special_tokens":{"d":{"id":"d","ids":[3,4],"tokens":["d","e"]}}}]})");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "ab", AddSpecials::kYes), (Texts{"d", "e", "a", "b"}));
  EXPECT_EQ(TokensOf(**tokenizer, "ab"), (Texts{"a", "b"}));
  EXPECT_EQ(*(*tokenizer)->EncodePair("a", "b", AddSpecials::kYes), (std::vector<TokenId>{1, 3, 4, 0}));
  EXPECT_EQ(*(*tokenizer)->EncodePair("a", "b", AddSpecials::kNo), (std::vector<TokenId>{1, 0}));
}

TEST(StreamDecoder, EmitsWholeCharactersAsSoonAsTheyAreCertain) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.decoder = R"({"type":"ByteLevel"})", .model = BpeModel({"ð", "Ł", "ĺ", "Ģ", "a"}, {})}));
  ASSERT_TRUE(tokenizer.ok());
  StreamDecoder stream(**tokenizer, SkipSpecials::kNo);
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Push(1), "");
  EXPECT_EQ(stream.Push(2), "");
  EXPECT_EQ(stream.Push(3), "😀");
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Push(4), "\uFFFDa");
  EXPECT_EQ(stream.Push(99), "");
  EXPECT_EQ(stream.Push(0), "");
  EXPECT_EQ(stream.Finish(), "\uFFFD");
}

}  // namespace
}  // namespace nunspark::text
