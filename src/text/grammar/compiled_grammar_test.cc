#include "text/grammar/compiled_grammar.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/utf8.h"
#include "text/grammar/matching_testing.h"
#include "text/grammar/schema_suite_testing.h"
#include "text/grammar/schema_validator_testing.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/testing.h"

namespace nunspark::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using P = GrammarPart;

struct Model {
  std::unique_ptr<Tokenizer> tokenizer;
  std::shared_ptr<const GrammarVocabulary> vocabulary;
};

Model LoadModel(const std::string& path) {
  Model model;
  model.tokenizer = Tokenizer::Load(std::string(NUNSPARK_SOURCE_DIR) + path).value();
  // The end is a token that no text has: the last special one, or the last of all.
  TokenId end = model.tokenizer->vocab_size() - 1;
  for (TokenId id = 0; id < model.tokenizer->vocab_size(); ++id) {
    if (model.tokenizer->IsSpecial(id)) end = id;
  }
  model.vocabulary = GrammarVocabulary::Create(*model.tokenizer, {.end_tokens = {end}}).value();
  return model;
}

using Compiled = Result<std::shared_ptr<CompiledGrammar>>;

Compiled FromGbnf(std::shared_ptr<const GrammarVocabulary> vocabulary, std::string grammar) {
  return CompiledGrammar::Compile(std::move(vocabulary), GrammarPart::Gbnf(std::move(grammar)));
}

Compiled FromJsonSchema(std::shared_ptr<const GrammarVocabulary> vocabulary, std::string schema) {
  return CompiledGrammar::Compile(std::move(vocabulary), GrammarPart::JsonSchema(std::move(schema)));
}

Compiled AnyJsonObject(std::shared_ptr<const GrammarVocabulary> vocabulary) {
  return CompiledGrammar::Compile(std::move(vocabulary), GrammarPart::JsonObject());
}

Model Demo() { return LoadModel("/models/demo-moe-4bit/tokenizer.json"); }

std::vector<TokenId> AllowedTokens(TokenConstraint& constraint, const GrammarVocabulary& vocabulary) {
  // Beyond the vocabulary, as logits often are.
  std::vector<uint32_t> bits(static_cast<size_t>(vocabulary.size()) / 32 + 3, 0xFFFFFFFF);
  constraint.Allowed(bits);
  std::vector<TokenId> ids;
  for (size_t id = 0; id < 32 * bits.size(); ++id) {
    if ((bits[id / 32] >> (id % 32) & 1) != 0) ids.push_back(static_cast<TokenId>(id));
  }
  return ids;
}

// A byte-level vocabulary of these tokens and of all bytes; the last token is special and the end.
Model SmallModel(std::vector<std::string> tokens, const std::vector<std::string>& added = {}) {
  std::vector<std::string> all;
  for (int byte = 0; byte < 256; ++byte) {
    std::string visible;
    AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), visible);
    all.push_back(visible);
  }
  for (const std::string& token : tokens) {
    std::string visible;
    AppendByteLevel(token, visible);
    all.push_back(visible);
  }
  std::string specials;
  for (const std::string& text : added) {
    specials += fmt::format(
        R"({{"id":{},"content":"{}","special":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}},)",
        all.size(), text, text.starts_with('<'));
    all.push_back(text);
  }
  specials += fmt::format(
      R"({{"id":{},"content":"<end>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}})",
      all.size());
  all.push_back("<end>");
  testing::Parts parts;
  parts.decoder = R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true})";
  parts.pre_tokenizer = parts.decoder;
  parts.added_tokens = "[" + specials + "]";
  parts.model = testing::BpeModel(all, {});
  Model model;
  model.tokenizer = testing::LoadJsonText(testing::JsonOf(parts)).value();
  model.vocabulary =
      GrammarVocabulary::Create(*model.tokenizer, {.end_tokens = {static_cast<TokenId>(all.size() - 1)}}).value();
  return model;
}

// Follows the allowed tokens at random, after `patience` of them towards an end. False when no end came.
bool RandomWalk(CompiledGrammar& grammar, const Model& model, uint64_t seed, int patience,
                std::vector<TokenId>& output) {
  const std::shared_ptr<TokenConstraint> constraint = grammar.NewConstraint();
  output.clear();
  for (uint32_t step = 0; step < 4000; ++step) {
    const std::vector<TokenId> allowed = AllowedTokens(*constraint, *model.vocabulary);
    if (allowed.empty()) return false;
    const auto random = [&](uint32_t item) { return KeyedUniform({.seed = seed, .position = step}, item); };
    TokenId token = allowed[static_cast<size_t>(random(0) * static_cast<double>(allowed.size()))];
    const bool hurry = static_cast<int>(step) >= patience;
    // Mostly marks, so that more than the inside of strings is visited.
    if (hurry || random(1) < 0.4) {
      std::vector<TokenId> marks;
      for (const std::string_view mark : {"\"", "\\", "}", "]", ":", "0", "1", ","}) {
        for (const TokenId id : allowed) {
          if (model.vocabulary->Bytes(id) == mark || model.vocabulary->IsEnd(id)) marks.push_back(id);
        }
        if (hurry && !marks.empty()) break;
      }
      if (!marks.empty()) token = marks[static_cast<size_t>(random(2) * static_cast<double>(marks.size()))];
      for (const TokenId id : allowed) {
        if (hurry && model.vocabulary->IsEnd(id)) token = id;
      }
    }
    constraint->Advance(token);
    if (model.vocabulary->IsEnd(token)) return true;
    output.push_back(token);
  }
  return false;
}

TEST(CompiledGrammar, EveryWalkThroughTheMasksOfASchemaGivesAValidValue) {
  int walks = 0;
  for (const char* path :
       {"/models/demo-moe-4bit/tokenizer.json", "/tests/data/tokenizers/syn_qwen35/tokenizer.json.gz",
        "/tests/data/tokenizers/syn_smollm2/tokenizer.json.gz",
        "/tests/data/tokenizers/syn_helium_unigram/tokenizer.json.gz",
        "/tests/data/tokenizers/syn_youtu/tokenizer.json.gz"}) {
    const Model model = LoadModel(path);
    for (const testing::SchemaCase& c : testing::SchemaSuite()) {
      const Result<std::shared_ptr<CompiledGrammar>> grammar = FromJsonSchema(model.vocabulary, c.schema);
      ASSERT_TRUE(grammar.ok()) << path << c.schema << grammar.status().message();
      const Json schema = testing::ParseValue(c.schema).value();
      // A walk towards an end does not know of the word that must come before it.
      if (c.schema.find("foo|") != std::string::npos) continue;
      for (uint64_t seed = 0; seed < 3; ++seed, ++walks) {
        std::vector<TokenId> output;
        ASSERT_TRUE(RandomWalk(**grammar, model, seed, 40, output))
            << path << c.schema << ": " << model.tokenizer->Decode(output, SkipSpecials::kYes).substr(0, 2000);
        const std::string text = model.tokenizer->Decode(output, SkipSpecials::kYes);
        const Result<Json> value = testing::ParseValue(text);
        ASSERT_TRUE(value.ok()) << path << c.schema << ": " << text << value.status().message();
        EXPECT_TRUE(testing::SchemaValidator(schema).Valid(*value)) << path << c.schema << ": " << text;
      }
    }
  }
  EXPECT_GE(walks, 1000);
}

TEST(CompiledGrammar, AllowsEveryTokenizationOfWhatTheSchemaAllows) {
  for (const char* path :
       {"/models/demo-moe-4bit/tokenizer.json", "/tests/data/tokenizers/syn_helium_unigram/tokenizer.json.gz"}) {
    const Model model = LoadModel(path);
    for (const testing::SchemaCase& c : testing::SchemaSuite()) {
      const auto grammar = FromJsonSchema(model.vocabulary, c.schema).value();
      for (const std::string& text : c.good) {
        const std::vector<TokenId> ids = model.tokenizer->Encode(text, AddSpecials::kNo).value();
        if (model.tokenizer->Decode(ids, SkipSpecials::kYes) != text) continue;  // not every text survives a normaliser
        const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
        for (const TokenId id : ids) {
          EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ::testing::Contains(id))
              << c.schema << " | " << text;
          constraint->Advance(id);
        }
        EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary),
                    ::testing::Contains(model.vocabulary->end_tokens()[0]))
            << c.schema << " | " << text;
      }
    }
  }
}

// The walk over the tree, the short cut for strings and the sets kept per state against trying each token by itself.
TEST(CompiledGrammar, MasksAreWhatTryingEveryTokenGives) {
  const Model model = Demo();
  const GrammarVocabulary& vocabulary = *model.vocabulary;
  for (
      const char* schema :
      {R"({"type":"object","properties":{"s":{"type":"string","maxLength":7},"t":{"type":"string","minLength":3}},"required":["s","t"]})",
       R"({"anyOf":[{"type":"string","maxLength":3},{"const":"hello world"},{"type":"string","pattern":"^[a-h ]{2,30}$"}]})",
       R"({"type":"array","items":{"type":"array","items":{"type":"integer"},"maxItems":3},"minItems":2,"maxItems":4})"}) {
    const auto grammar = FromJsonSchema(model.vocabulary, schema).value();
    const Automaton automaton = testing::SchemaAutomaton(schema).value();
    for (uint64_t seed = 0; seed < 6; ++seed) {
      std::vector<TokenId> output;
      ASSERT_TRUE(RandomWalk(*grammar, model, seed, 15, output));
      const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
      Matcher matcher(automaton);
      Matcher::State state = matcher.start();
      const auto after = [&](std::string_view bytes) {
        Matcher::State next = state;
        for (const char c : bytes) next = matcher.Step(next, static_cast<uint8_t>(c));
        return next;
      };
      for (const TokenId token : output) {
        std::vector<TokenId> expected;
        for (TokenId id = 0; id < vocabulary.size(); ++id) {
          const bool fits = !vocabulary.Bytes(id).empty() && after(vocabulary.Bytes(id)) != Matcher::kDead;
          if (fits || (vocabulary.IsEnd(id) && matcher.accepts(state))) expected.push_back(id);
        }
        ASSERT_EQ(AllowedTokens(*constraint, vocabulary), expected) << schema;
        constraint->Advance(token);
        state = after(vocabulary.Bytes(token));
      }
    }
  }
}

TEST(CompiledGrammar, AnyJsonObjectIsOne) {
  const Model model = Demo();
  const auto grammar = AnyJsonObject(model.vocabulary).value();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<TokenId> output;
    ASSERT_TRUE(RandomWalk(*grammar, model, seed, 30, output));
    const Result<Json> value = ParseJson(model.tokenizer->Decode(output, SkipSpecials::kYes), "output");
    ASSERT_TRUE(value.ok()) << value.status().message();
    EXPECT_TRUE(value->is_object());
  }
}

TEST(CompiledGrammar, PiecesOfCharactersAreAllowedWhereTheirCharacterIs) {
  const Model model = SmallModel({"\xF0\x9F\x98", "\x80\"", "\xC3\xA9\xC3"});
  const auto grammar = FromGbnf(model.vocabulary, "root ::= \"\\\"\" [é😀]{2} \"\\\"\"").value();
  const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
  const auto id = [&](std::string_view bytes) {
    std::string visible;
    AppendByteLevel(bytes, visible);
    return *model.tokenizer->FindToken(visible);
  };
  const auto allowed = [&] { return AllowedTokens(*constraint, *model.vocabulary); };
  constraint->Advance(id("\""));
  EXPECT_THAT(allowed(), UnorderedElementsAre(id("\xC3"), id("\xC3\xA9\xC3"), id("\xF0"), id("\xF0\x9F\x98")));
  constraint->Advance(id("\xC3\xA9\xC3"));
  EXPECT_THAT(allowed(), UnorderedElementsAre(id("\xA9")));
  constraint->Advance(id("\xA9"));
  EXPECT_THAT(allowed(), UnorderedElementsAre(id("\"")));

  const std::shared_ptr<TokenConstraint> other = grammar->NewConstraint();
  for (const std::string_view part : {"\"", "\xC3", "\xA9", "\xF0\x9F\x98"}) other->Advance(id(part));
  EXPECT_THAT(AllowedTokens(*other, *model.vocabulary), UnorderedElementsAre(id("\x80"), id("\x80\"")));
}

TEST(CompiledGrammar, EndTokensAreAllowedExactlyWhereTheGrammarMayEnd) {
  const Model model = SmallModel({"ab"}, {"<tool>", "mark"});
  const TokenId end = model.vocabulary->end_tokens()[0];
  const auto grammar = FromGbnf(model.vocabulary, "root ::= \"ab\" \"c\"?").value();
  const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
  const auto id = [&](std::string_view text) { return *model.tokenizer->FindToken(text); };
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), UnorderedElementsAre(id("a"), id("ab")));
  constraint->Advance(id("ab"));
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), UnorderedElementsAre(id("c"), end));
  constraint->Advance(id("c"));
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ElementsAre(end));
  constraint->Advance(end);
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ElementsAre(end));
}

TEST(CompiledGrammar, ATokenThatWasNotAllowedEndsTheOutput) {
  const Model model = SmallModel({});
  const auto grammar = FromGbnf(model.vocabulary, "root ::= \"abc\"").value();
  for (const TokenId wrong : {*model.tokenizer->FindToken("x"), TokenId{-1}, TokenId{1 << 20}}) {
    const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
    constraint->Advance(wrong);
    EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ElementsAre(model.vocabulary->end_tokens()[0]));
  }
}

TEST(CompiledGrammar, SpecialTokensComeOnlyWhereALiteralNamesThem) {
  const Model model = SmallModel({"<to"}, {"<tool>"});
  const TokenId tool = *model.tokenizer->FindToken("<tool>");
  const auto free = FromGbnf(model.vocabulary, "root ::= [^x]*").value();
  EXPECT_THAT(AllowedTokens(*free->NewConstraint(), *model.vocabulary), ::testing::Not(::testing::Contains(tool)));
  const auto named = CompiledGrammar::Compile(model.vocabulary, P::Literal("a<tool>b")).value();
  const std::shared_ptr<TokenConstraint> constraint = named->NewConstraint();
  constraint->Advance(*model.tokenizer->FindToken("a"));
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ElementsAre(tool));
  constraint->Advance(tool);
  EXPECT_THAT(AllowedTokens(*constraint, *model.vocabulary), ElementsAre(*model.tokenizer->FindToken("b")));
}

TEST(CompiledGrammar, MarkupTokensComeWhereTheyAreSpelledOutAndNeverInStrings) {
  const Model model = SmallModel({"<call>"});
  const TokenId call = *model.tokenizer->FindToken("<call>");
  const auto vocabulary =
      GrammarVocabulary::Create(*model.tokenizer,
                                {.end_tokens = {model.vocabulary->end_tokens()[0]}, .spelled_only = {call}})
          .value();
  const auto grammar =
      CompiledGrammar::Compile(vocabulary, P::Sequence({P::TextUntil("<call>"), P::JsonSchema(R"({"type":"string"})")}))
          .value();
  const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ::testing::Contains(call));
  constraint->Advance(*model.tokenizer->FindToken("a"));
  constraint->Advance(call);
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ElementsAre(*model.tokenizer->FindToken("\"")));
  constraint->Advance(*model.tokenizer->FindToken("\""));
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ::testing::Not(::testing::Contains(call)));
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ::testing::Contains(*model.tokenizer->FindToken("<")));
}

// What the server builds for tools that the model may call.
TEST(CompiledGrammar, FreeTextTurnsIntoACallAtTheTrigger) {
  const Model model = SmallModel({"<to", "ol>", "{\"", "x<<tool>"});
  const auto call =
      P::Sequence({P::JsonSchema(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})"),
                   P::Literal("</tool>")});
  const auto grammar =
      CompiledGrammar::Compile(model.vocabulary,
                               P::Sequence({P::Repeat(P::Sequence({P::TextUntil("<tool>"), call}), 0, kUnlimited),
                                            P::TextWithout("<tool>")}))
          .value();
  const auto follows = [&](std::string_view text) {
    const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
    for (const char c : text) {
      std::string visible;
      AppendByteLevel(std::string_view(&c, 1), visible);
      const TokenId id = *model.tokenizer->FindToken(visible);
      const std::vector<TokenId> allowed = AllowedTokens(*constraint, *model.vocabulary);
      if (std::find(allowed.begin(), allowed.end(), id) == allowed.end()) return false;
      constraint->Advance(id);
    }
    const std::vector<TokenId> allowed = AllowedTokens(*constraint, *model.vocabulary);
    return std::find(allowed.begin(), allowed.end(), model.vocabulary->end_tokens()[0]) != allowed.end();
  };
  EXPECT_TRUE(follows(""));
  EXPECT_TRUE(follows("just <b>text</b> <too"));
  EXPECT_TRUE(follows("hm <<tool>{\"a\":1}</tool>"));
  EXPECT_TRUE(follows("<tool>{\"a\": 1}</tool> and <to<tool>{\"a\":2}</tool>\n"));
  EXPECT_FALSE(follows("<tool>text"));
  EXPECT_FALSE(follows("<tool>{\"a\":1}"));
  EXPECT_FALSE(follows("<tool>{\"a\":1}</tool><tool>"));
}

TEST(CompiledGrammar, TheSpaceThatATokenLosesAtTheStartCounts) {
  testing::Parts parts;
  parts.decoder = R"({"type":"Metaspace","replacement":"▁","prepend_scheme":"always","split":true})";
  parts.added_tokens =
      R"([{"id":4,"content":"<end>","special":true,"single_word":false,"lstrip":false,"rstrip":false,"normalized":false}])";
  parts.model = testing::BpeModel({"▁a", "a", "▁", "▁▁a", "<end>"}, {});
  const auto tokenizer = testing::LoadJsonText(testing::JsonOf(parts)).value();
  const auto vocabulary = GrammarVocabulary::Create(*tokenizer, {.end_tokens = {4}}).value();
  const auto grammar = FromGbnf(vocabulary, "root ::= \"a\" \" a\"*").value();
  const std::shared_ptr<TokenConstraint> constraint = grammar->NewConstraint();
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ElementsAre(0, 1, 2, 3));  // this decoder drops all of them
  constraint->Advance(0);
  EXPECT_THAT(AllowedTokens(*constraint, *vocabulary), ElementsAre(0, 2, 4));
}

TEST(CompiledGrammar, RefusesWhatTheVocabularyCannotSpell) {
  testing::Parts parts;
  parts.decoder = R"({"type":"Fuse"})";
  parts.model = testing::BpeModel({"a", "b", "<end>"}, {});
  const auto tokenizer = testing::LoadJsonText(testing::JsonOf(parts)).value();
  const auto vocabulary = GrammarVocabulary::Create(*tokenizer, {.end_tokens = {2}}).value();
  EXPECT_TRUE(FromGbnf(vocabulary, "root ::= [abc]+").ok());
  const auto grammar = FromGbnf(vocabulary, "root ::= \"ac\"");
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(grammar.status().message(), HasSubstr("no token for byte 0x63"));
}

TEST(CompiledGrammar, StaysWithinItsMemoryHoweverLongOutputsAre) {
  const Model model = Demo();
  const auto grammar = AnyJsonObject(model.vocabulary).value();
  std::vector<std::shared_ptr<TokenConstraint>> constraints;
  for (int i = 0; i < 8; ++i) constraints.push_back(grammar->NewConstraint());
  // Ever deeper, each output in its own way.
  for (uint32_t step = 0; step < 1500; ++step) {
    for (uint32_t i = 0; i < constraints.size(); ++i) {
      const bool array = KeyedUniform({.seed = i, .position = step}, 0) < 0.5;
      for (const char* text : {"{", "\"", "k", "\"", ":", array ? "[" : "{", array ? "{" : "\"", array ? "\"" : "k",
                               array ? "k" : "\"", array ? "\"" : ":", array ? ":" : "[", "["}) {
        constraints[i]->Advance(*model.tokenizer->FindToken(text));
      }
      if (step % 50 != 0) continue;
      EXPECT_GT(AllowedTokens(*constraints[i], *model.vocabulary).size(), 1u);
    }
    ASSERT_LE(grammar->memory_bytes(), grammar->memory_bytes_max());
  }
}

TEST(CompiledGrammar, OutputsOnManyThreadsGetWhatOneGets) {
  const Model model = Demo();
  const std::string schema = testing::SchemaSuite().back().schema;
  const auto grammar = FromJsonSchema(model.vocabulary, schema).value();
  std::vector<std::vector<TokenId>> alone(8);
  for (uint64_t seed = 0; seed < alone.size(); ++seed) {
    ASSERT_TRUE(RandomWalk(*FromJsonSchema(model.vocabulary, schema).value(), model, seed, 30, alone[seed]));
  }
  std::vector<std::vector<TokenId>> together(alone.size());
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < alone.size(); ++seed) {
    threads.emplace_back([&, seed] { RandomWalk(*grammar, model, seed, 30, together[seed]); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

TEST(GrammarCache, KeepsTheGrammarsLastUsed) {
  const Model model = SmallModel({});
  const auto one = FromGbnf(model.vocabulary, "root ::= \"a\"").value();
  GrammarCache cache(model.vocabulary, 2 * one->memory_bytes_max() + 1000);
  const auto a = cache.Get(P::Gbnf("root ::= \"a\"")).value();
  const auto b = cache.Get(P::Gbnf("root ::= \"b\"")).value();
  EXPECT_EQ(cache.Get(P::Gbnf("root ::= \"a\"")).value(), a);
  EXPECT_NE(cache.Get(P::Literal("root ::= \"a\"")).value(), a);  // the least recently used, b, goes
  EXPECT_EQ(cache.Get(P::Gbnf("root ::= \"a\"")).value(), a);
  EXPECT_NE(cache.Get(P::Gbnf("root ::= \"b\"")).value(), b);
  EXPECT_FALSE(cache.Get(P::Gbnf("root ::=")).value() == nullptr);
  EXPECT_FALSE(cache.Get(P::Gbnf("root")).ok());
}

TEST(GrammarPart, SaysWhatIsWrong) {
  const Model model = SmallModel({});
  EXPECT_THAT(CompiledGrammar::Compile(model.vocabulary, P::TextUntil("")).status().message(),
              HasSubstr("a trigger must have"));
  EXPECT_THAT(CompiledGrammar::Compile(model.vocabulary, P::TextUntil("x", {99999})).status().message(),
              HasSubstr("token 99999 is outside"));
  EXPECT_THAT(CompiledGrammar::Compile(model.vocabulary, P::Repeat(P::Literal("a"), 3, 2)).status().message(),
              HasSubstr("none"));
  P deep = P::Literal("a");
  for (int i = 0; i < 40; ++i) deep = P::Sequence({deep});
  EXPECT_THAT(CompiledGrammar::Compile(model.vocabulary, deep).status().message(), HasSubstr("nested more than"));
  EXPECT_FALSE(GrammarVocabulary::Create(*model.tokenizer, {.end_tokens = {-1}}).ok());
}

}  // namespace
}  // namespace nunspark::text
