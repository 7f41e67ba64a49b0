// Files of every format: what is refused, and how; what a folder adds.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "text/tokenizer/base64.h"
#include "text/tokenizer/score.h"
#include "text/tokenizer/sentencepiece.h"
#include "text/tokenizer/testing.h"
#include "text/tokenizer/text_file.h"
#include "text/tokenizer/tokenize_lines.h"

namespace nunspark::text {
namespace {

using testing::BpeModel;
using testing::JsonOf;
using testing::LoadJsonText;
using testing::Parts;
using testing::TokensOf;
using Texts = std::vector<std::string>;

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tokenizer_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string Write(const std::string& name, std::string_view content) const {
    const std::string path = path_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string Gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string SmallJson() {
  return JsonOf({.pre_tokenizer = R"({"type":"WhitespaceSplit"})",
                 .decoder = R"({"type":"Fuse"})",
                 .added_tokens = R"([{"content":"<s>","special":true},{"content":"</s>","special":true}])",
                 .model = BpeModel({"a", "b", "ab"}, {"a b"})});
}

TEST(TokenizerJson, EveryTruncationIsRefused) {
  const std::string json = SmallJson();
  ASSERT_TRUE(LoadJsonText(json).ok()) << LoadJsonText(json).status().message();
  for (size_t size = 0; size < json.size(); ++size) {
    const auto tokenizer = LoadJsonText(json.substr(0, size));
    ASSERT_FALSE(tokenizer.ok()) << size;
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kDataLoss);
    EXPECT_TRUE(tokenizer.status().message().starts_with("test.json: ")) << tokenizer.status().message();
  }
}

TEST(TokenizerJson, ErrorsSayWhereAndWhat) {
  const auto message = [](const std::string& model) {
    return LoadJsonText(JsonOf({.model = model})).status().message();
  };
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":0},"merges":["a b"]})"),
            R"(test.json: model.merges[0]: expected tokens of the vocabulary, found "b")");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":0},"merges":["a a"]})"),
            R"(test.json: model.merges[0]: expected its product in the vocabulary, found no "aa")");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":0},"merges":["a"]})"),
            R"(test.json: model.merges[0]: expected two tokens with a space between, found "a")");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":-1},"merges":[]})"),
            R"(test.json: model.vocab."a": expected an id from 0 to 2097150, found another value)");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":99999999},"merges":[]})").substr(0, 30),
            R"(test.json: model.vocab."a": ex)");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":3,"merges":[]})"),
            "test.json: model.vocab: expected object or array, found number");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":0}})"), "test.json: model: expected merges, found none");
  EXPECT_EQ(message(R"({"type":"WordPiece","vocab":{"a":0}})"),
            "test.json: model: type: this build knows BPE and Unigram, not 'WordPiece'");
  EXPECT_EQ(message(R"({"type":"BPE","vocab":{"a":0},"merges":[],"dropout":0.1})"),
            "test.json: model: dropout: ids would be random; set it to null");
  EXPECT_EQ(message(R"({"type":"Unigram","vocab":[["a",-1.0,3]]})"),
            "test.json: model.vocab[0]: expected 2 elements, found 3");
  EXPECT_EQ(message(R"({"type":"Unigram","vocab":[["a","x"]]})"),
            "test.json: model.vocab[0]: expected a score, found another value");
  EXPECT_EQ(message(R"({"type":"Unigram","vocab":[["a",-1]],"unk_id":1})"),
            "test.json: model.unk_id: expected an integer from 0 to 0, found 1");
  EXPECT_EQ(LoadJsonText("{}").status().message(), "test.json: expected a model with a vocab, found none");
}

TEST(TokenizerJson, MergesMayComeFirstAndBePairs) {
  const auto tokenizer =
      LoadJsonText(R"({"model":{"merges":[["a"," b"]," #version x"," #version"],"vocab":{"a":0," b":1,"a b":2}}})");
  EXPECT_FALSE(tokenizer.ok());
  const auto good = LoadJsonText(
      R"({"model":{"merges":[["a"," b"],"#version: 0.2"],"vocab":{"a":0," b":1,"a b":2," ":3,"b":4},"type":"BPE"}})");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_EQ((*good)->vocab_size(), 5);
}

TEST(Unigram, FindsTheBestSumAndFusesUnknowns) {
  const std::string model =
      R"({"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[["<unk>",0],["a",-1],["b",-1],["ab",-1.5],["abb",-4]]})";
  const auto tokenizer = LoadJsonText(JsonOf({.model = model}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "abb"), (Texts{"ab", "b"}));
  EXPECT_EQ(TokensOf(**tokenizer, "axyb"), (Texts{"a", "<unk>", "b"}));
  const auto none = LoadJsonText(JsonOf({.model = R"({"type":"Unigram","vocab":[["a",-1]]})"}));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ((*none)->Encode("ax", AddSpecials::kNo).status().code(), StatusCode::kDataLoss);
}

TEST(Score, IsReadAsTheReferenceReadsIt) {
  EXPECT_EQ(ParseScore("-1.5"), -1.5);
  EXPECT_EQ(ParseScore("3"), 3.0);
  EXPECT_EQ(ParseScore("1e2"), 100.0);
  EXPECT_EQ(ParseScore("-0.0"), 0.0);
  EXPECT_TRUE(std::signbit(*ParseScore("-0.0")));
  // Seventeen digits do not fit a double: dividing them rounds twice.
  EXPECT_EQ(ParseScore("-10.527361457712999"), -10527361457712999.0 / 1e15);
  EXPECT_EQ(ParseScore("0.12345678901234567890123"), 12345678901234567890.0 / 1e20);
  EXPECT_EQ(ParseScore("1e-400"), 0.0);
  for (const char* bad : {"", "-", "01", "1.", ".5", "1e", "1e400", "nan", "1 "})
    EXPECT_FALSE(ParseScore(bad).has_value()) << bad;
}

TEST(Base64, DecodesOrRefuses) {
  EXPECT_EQ(DecodeBase64("aGVsbG8="), "hello");
  EXPECT_EQ(DecodeBase64(""), "");
  EXPECT_EQ(DecodeBase64("/+8="), "\xFF\xEF");
  for (const char* bad : {"a", "ab=c", "a===", "ab c", "ab\n="}) EXPECT_FALSE(DecodeBase64(bad).has_value()) << bad;
}

TEST(Load, ReadsPlainAndPackedFiles) {
  const TemporaryFolder folder;
  const auto plain = Tokenizer::Load(folder.Write("tokenizer.json", SmallJson()));
  const auto packed = Tokenizer::Load(folder.Write("t.json.gz", Gzip(SmallJson())));
  ASSERT_TRUE(plain.ok() && packed.ok()) << packed.status().message();
  EXPECT_EQ(TokensOf(**packed, "ab a"), (Texts{"ab", "a"}));
  EXPECT_GT((*packed)->memory_bytes(), 0);
  const std::string whole = Gzip(SmallJson());
  for (size_t size : {size_t{5}, whole.size() / 2, whole.size() - 9}) {
    EXPECT_EQ(Tokenizer::Load(folder.Write("cut.gz", whole.substr(0, size))).status().code(), StatusCode::kDataLoss)
        << size;
  }
}

TEST(Load, FilesBeyondTheLimitAreRefusedPackedOrNot) {
  const TemporaryFolder folder;
  const std::string text(300000, ' ');
  const TextFileOptions options{.bytes_max = 200000};
  EXPECT_EQ(ReadTextFile(folder.Write("plain", text), options).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ReadTextFile(folder.Write("packed.gz", Gzip(text)), options).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(*ReadTextFile(folder.Write("packed.gz", Gzip(text)), {.bytes_max = 300000}), text);
}

TEST(Load, SaysWhatIsMissing) {
  const TemporaryFolder folder;
  EXPECT_EQ(Tokenizer::Load(folder.path()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Tokenizer::Load(folder.path() + "/none.json").status().code(), StatusCode::kNotFound);
  const auto pointer =
      Tokenizer::Load(folder.Write("tokenizer.json", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"));
  EXPECT_NE(pointer.status().message().find("LFS pointer"), std::string::npos);
  EXPECT_EQ(Tokenizer::Load(folder.Write("x.bin", "whatever")).status().code(), StatusCode::kDataLoss);
}

TEST(Load, LlamaClassesTakeTheirSpecialsFromTheConfig) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.json", SmallJson());
  const auto tokens = [&](const std::string& config) {
    folder.Write("tokenizer_config.json", config);
    const auto tokenizer = Tokenizer::Load(folder.path());
    return tokenizer.ok() ? TokensOf(**tokenizer, "a", AddSpecials::kYes) : Texts{tokenizer.status().message()};
  };
  const std::string names = R"("bos_token":"<s>","eos_token":{"content":"</s>"})";
  EXPECT_EQ(tokens("{\"tokenizer_class\":\"LlamaTokenizer\"," + names + "}"), (Texts{"<s>", "a"}));
  EXPECT_EQ(tokens("{\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":false,\"add_eos_token\":true," +
                   names + "}"),
            (Texts{"a", "</s>"}));
  EXPECT_EQ(tokens("{\"tokenizer_class\":\"LlamaTokenizer\"}"), (Texts{"a"}));
  EXPECT_EQ(tokens("{\"tokenizer_class\":\"Qwen2Tokenizer\",\"add_bos_token\":true," + names + "}"), (Texts{"a"}));
}

// -- SentencePiece ---------------------------------------------------------------------------------------------------

std::string Varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
std::string Bytes(int field, std::string_view bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + std::string(bytes);
}
std::string Number(int field, uint64_t value) { return Varint(static_cast<uint64_t>(field) << 3) + Varint(value); }
std::string Piece(std::string_view text, float score, SpmPiece::Kind kind) {
  std::string bits(sizeof(score), '\0');
  std::memcpy(bits.data(), &score, sizeof(score));
  return Bytes(1, Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, static_cast<uint64_t>(kind)));
}

std::string SpmModel(int algorithm, const std::string& normalizer) {
  using enum SpmPiece::Kind;
  std::string model = Piece("<unk>", 0, kUnknown) + Piece("<s>", 0, kControl) + Piece("<x>", 0, kUserDefined);
  float score = -1;
  for (const char* text : {"▁", "a", "b", "ab", "▁ab", "abab"}) model += Piece(text, score -= 0.25f, kNormal);
  return model + Piece("▁a", -0.5f, kUnused) + Bytes(2, Number(3, static_cast<uint64_t>(algorithm))) +
         Bytes(3, normalizer);
}

TEST(SentencePiece, BpeMergesByScoreAndTakesUnusedPiecesApart) {
  const auto tokenizer = LoadSentencePiece(SpmModel(2, ""), "test.model", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "  ab  a "), (Texts{"▁ab", "▁", "a"}));
  EXPECT_EQ(TokensOf(**tokenizer, "a<x>xyb"), (Texts{"▁", "a", "<x>", "<unk>", "b"}));
  EXPECT_TRUE((*tokenizer)->IsSpecial(1));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{1, 7, 3, 0, 2}, SkipSpecials::kNo), "ab  ⁇ <x>");
}

TEST(SentencePiece, UnigramFindsTheBestSum) {
  const auto tokenizer = LoadSentencePiece(SpmModel(1, Number(3, 0) + Number(4, 0)), "test.model", {});
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(TokensOf(**tokenizer, "abab<x> "), (Texts{"abab", "<x>", "▁"}));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{3, 4}, SkipSpecials::kNo), " a");
}

TEST(SentencePiece, EveryTruncationAndEveryByteIsHarmless) {
  const std::string model = SpmModel(2, Number(3, 1));
  for (size_t size = 0; size < model.size(); ++size)
    (void)LoadSentencePiece(std::string_view(model).substr(0, size), "m", {});
  for (size_t i = 0; i < model.size(); ++i) {
    std::string changed = model;
    changed[i] = static_cast<char>(changed[i] ^ 0x55);
    const auto tokenizer = LoadSentencePiece(changed, "m", {});
    if (tokenizer.ok()) (void)(*tokenizer)->Encode("ab <x> \u1234", AddSpecials::kNo);
  }
  EXPECT_EQ(LoadSentencePiece("", "m", {}).status().message(), "m: expected pieces, found none");
  EXPECT_EQ(LoadSentencePiece(SpmModel(3, ""), "m", {}).status().code(), StatusCode::kUnsupported);
}

TEST(SentencePiece, TokensOfTheConfigAreFoundInTheText) {
  const TemporaryFolder folder;
  folder.Write("tokenizer.model", SpmModel(2, ""));
  folder.Write(
      "tokenizer_config.json",
      R"({"added_tokens_decoder":{"1":{"content":"<s>","special":true},"20":{"content":"<end>","special":true}},
      "tokenizer_class":"InternLM3Tokenizer","bos_token":"<s>"})");
  const auto tokenizer = Tokenizer::Load(folder.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(*(*tokenizer)->Encode("<s>ab<end>", AddSpecials::kYes), (std::vector<TokenId>{1, 1, 7, 20}));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{1, 7, 20}, SkipSpecials::kNo), "<s> ab<end>");
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{1, 7, 20}, SkipSpecials::kYes), "ab");
}

// -- tiktoken --------------------------------------------------------------------------------------------------------

std::string Ranks() {
  std::string file;
  static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte) {
    file += {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
    file += " " + std::to_string(byte) + "\n";
  }
  return file + "YWE= 256\nYWFh 257\nYWI= 258\r\n";  // aa, aaa, ab
}

TEST(Tiktoken, MergesByTheRankOfTheJoinedBytes) {
  ASSERT_TRUE(LooksLikeTiktoken(Ranks()));
  const auto tokenizer = LoadTiktoken(Ranks(), "ranks", {}, "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(*(*tokenizer)->Encode("aaab", AddSpecials::kNo), (std::vector<TokenId>{257, 'b'}));
  EXPECT_EQ(*(*tokenizer)->Encode("aab", AddSpecials::kNo), (std::vector<TokenId>{256, 'b'}));
  EXPECT_EQ((*tokenizer)->Decode(std::vector<TokenId>{256, 0xC3, 0xA9}, SkipSpecials::kNo), "aaé");
}

TEST(Tiktoken, BadLinesAreNamed) {
  const auto message = [](const std::string& file) { return LoadTiktoken(file, "ranks", {}, "").status().message(); };
  EXPECT_EQ(message(Ranks() + "YWE= 300\n"),
            "ranks: line 260: expected a new token and rank, found one that was there before");
  EXPECT_EQ(message(Ranks() + "YWE 300\n"),
            "ranks: line 260: expected a token in base64 and its rank, found 'YWE 300'");
  EXPECT_EQ(message(Ranks() + "YWFhYQ== x\n").substr(0, 16), "ranks: line 260:");
  EXPECT_EQ(message(Ranks().substr(7)), "ranks: expected a token for each byte, found none for 0x00");
}

// -- lines -----------------------------------------------------------------------------------------------------------

TEST(TokenizeLine, AnswersEveryKindOfLine) {
  const auto tokenizer =
      LoadJsonText(JsonOf({.post_processor = R"({"type":"BertProcessing","sep":["b",1],"cls":["a",0]})",
                           .decoder = R"({"type":"Fuse"})",
                           .added_tokens = R"([{"content":"<s>","special":true}])",
                           .model = BpeModel({"a", "b", "\"", "�"}, {})}));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const auto answer = [&](std::string_view line) { return TokenizeLine(**tokenizer, line); };
  EXPECT_EQ(answer(R"({"text":"a\"<s>"})"), R"({"ids":[0,2,4],"tokens":["a","\"","<s>"]})");
  EXPECT_EQ(answer(R"({"text":"","special":true})"), R"({"ids":[0,1],"tokens":["a","b"]})");
  EXPECT_EQ(answer(R"({"bytes_hex":"61ff"})"), R"({"ids":[0,3],"tokens":["a","�"]})");
  EXPECT_EQ(answer(R"({"ids":[0,4,99,1]})"), R"({"text":"a<s>b"})");
  EXPECT_EQ(answer(R"({"ids":[0,4,1],"skip_special":true})"), R"({"text":"ab"})");
  for (const char* bad : {"", "x", "[]", "{}", R"({"text":1})", R"({"ids":["a"]})", R"({"ids":[-1]})", R"({"ids":1})",
                          R"({"bytes_hex":"6"})", R"({"bytes_hex":"zz"})", R"({"text":"a","special":1})",
                          R"({"text":"a","ids":[]})", R"({"text":"a","bytes_hex":""})"}) {
    EXPECT_TRUE(answer(bad).starts_with(R"({"error":{"type":"invalid_argument","message":")"))
        << bad << " " << answer(bad);
  }
}

}  // namespace
}  // namespace nunspark::text
