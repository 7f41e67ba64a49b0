#include "text/grammar/gbnf.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar/matching_testing.h"

namespace nunspark::text {
namespace {

using ::testing::HasSubstr;

void ExpectMatches(std::string_view grammar, std::initializer_list<std::string_view> good,
                   std::initializer_list<std::string_view> bad) {
  const Result<Automaton> automaton = testing::GbnfAutomaton(grammar);
  ASSERT_TRUE(automaton.ok()) << grammar << ": " << automaton.status().message();
  for (const std::string_view text : good) EXPECT_TRUE(testing::Matches(*automaton, text)) << grammar << " | " << text;
  for (const std::string_view text : bad) EXPECT_FALSE(testing::Matches(*automaton, text)) << grammar << " | " << text;
}

TEST(Gbnf, MatchesLiteralsClassesGroupsAndRepetitions) {
  ExpectMatches(R"(root ::= "yes" | "no")", {"yes", "no"}, {"", "y", "yesno"});
  ExpectMatches(R"(root ::= "a"* "b"+ "c"?)", {"b", "aabbc"}, {"", "a", "bcc"});
  ExpectMatches(R"(root ::= "a"{2} "b"{1,2} "c"{2,} "d"{,1})", {"aabcc", "aabbcccd"},
                {"abcc", "aabbbcc", "aabc", "aabccdd"});
  ExpectMatches(R"(root ::= [a-cX\]\-] [^a-c\n])", {"ad", "X ", "]é", "-\xF0\x9F\x98\x80"}, {"aa", "a\n", "d ", "a"});
  ExpectMatches(R"(root ::= ("a" | "b" "c")+ .)", {"a!", "bcabc中"}, {"b!", "a", "a\xE4\xB8"});
  ExpectMatches(R"(root ::= "\x41\u00e9\U0001F600\"\\\t")", {"Aé😀\"\\\t"}, {"A"});
  ExpectMatches("root ::= \"é\" [а-я]", {"éж"}, {"é", "\xC3"});
  ExpectMatches(R"(root ::= "")", {""}, {"a"});
  ExpectMatches(R"(root ::= [])"
                "\n | \"x\"",
                {"x"}, {""});
}

TEST(Gbnf, RulesMayBeSpreadOverLinesAndCallThemselves) {
  ExpectMatches("# comment\nroot ::= # more\n  item\n  | item \",\"\n root\n\nitem ::= \"(\" root? \")\" | [0-9]+",
                {"1", "1,2,3", "((1),2)", "()"}, {"1,", "(", ")("});
  ExpectMatches("root ::= a\na ::= \"x\" a | \"y\"", {"y", "xxxy"}, {"x", ""});
}

TEST(Gbnf, TakesTheGrammarOfJson) {
  constexpr std::string_view kJson = R"(root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)";
  ExpectMatches(kJson, {"{}", R"({"a": [1, -2.5e3, "x\u00e9\n"], "b": {"c": null}})"}, {"[]", "{", R"({"a":})"});
}

TEST(Gbnf, SaysWhereAndWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "the grammar has no rule 'root'"},
      {"a ::= \"x\"", "the grammar has no rule 'root'"},
      {"root = \"x\"", "line 1, column 6: expected '::=', found '='"},
      {"root ::= \"x", "line 1, column 12: expected '\"', found the end"},
      {"root ::= \"x\n\"", "expected '\"', found a line break"},
      {"root ::= [a-", "expected ']', found the end"},
      {"root ::= [z-a]", "column 11: a range whose end comes before"},
      {"root ::= (\"a\"", "expected ')', found the end"},
      {"root ::= \"a\" )", "column 14: expected a name with '::=', '|' or the end, found ')'"},
      {"root ::= * ", "found '*'"},
      {"root ::= \"a\"{3,2}", "from 3 to 2 times is none"},
      {"root ::= \"a\"{x}", "expected a number, found 'x'"},
      {"root ::= \"a\"{9999999}", "a repetition of more than 1000000 times"},
      {"root ::= \"\\q\"", "expected an escape"},
      {"root ::= \"\\xG0\"", "expected 2 hexadecimal digits"},
      {"root ::= \"\\uD800\"", "no character"},
      {"root ::= \"a\"\n  é missing", "line 2, column 3"},
      {"root ::= a\n  | b\na ::= \"x\"", "line 2, column 5: there is no rule 'b'"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: the rule 'root' is there already"},
      {"root ::= root \"a\" | \"b\"", "'root' begins with itself"},
      {"root ::= x? root \"a\" | \"b\"\nx ::= \"y\"", "'root' begins with itself"},
      {"root ::= a\na ::= b \"x\"\nb ::= c\nc ::= a | \"q\"", "begins with itself"},
      {"root ::= (\"a\"?)*", "'root' repeats a part that may be empty"},
      {"root ::= w+\nw ::= \" \"*", "'root' repeats a part that may be empty"},
      {"root ::= \"a\" root", "'the output' can never be complete"},
      {"root ::= [^\\x00-\\U0010FFFF]", "can never be complete"},
      {"root ::= \"\xFF\"", "not valid UTF-8"},
  };
  for (const auto& [grammar, message] : cases) {
    EXPECT_THAT(testing::MessageOf(testing::GbnfAutomaton(grammar)), HasSubstr(message)) << grammar;
  }
}

TEST(Gbnf, RefusesGrammarsMadeToBlowUp) {
  const std::string nested = "root ::= " + std::string(300, '(') + "\"a\"" + std::string(300, ')');
  EXPECT_THAT(testing::MessageOf(testing::GbnfAutomaton(nested)), HasSubstr("nested"));

  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 40; ++i) doubling += fmt::format("a{} ::= a{} \"x\" | a{} \"y\"\n", i, i + 1, i + 1);
  EXPECT_THAT(testing::MessageOf(testing::GbnfAutomaton(doubling + "a40 ::= \"z\"")), HasSubstr("ways at once"));

  std::string chain = "root ::= a0\n";
  for (int i = 0; i < 20000; ++i) chain += fmt::format("a{} ::= a{} \"x\"\n", i, i + 1);
  EXPECT_TRUE(testing::GbnfAutomaton(chain + "a20000 ::= \"z\"").ok());

  const Result<Automaton> huge =
      testing::GbnfAutomaton("root ::= ((\"a\"{0,1000000} \"b\"){1,1000000} \"c\"){1,1000000}");
  ASSERT_TRUE(huge.ok());
  EXPECT_LT(huge->node_count(), 20u);
  EXPECT_TRUE(testing::Matches(*huge, "aabbcabc"));
}

// A place of each number of repetitions: the set of a state is bounded, and what is in it leads to the end.
TEST(Gbnf, AmbiguousRepetitionsStayBounded) {
  const Result<Automaton> automaton = testing::GbnfAutomaton("root ::= ((\"a\" | \"aa\"){1,3000} \"b\"?){1,3000}");
  ASSERT_TRUE(automaton.ok());
  Matcher matcher(*automaton);
  Matcher::State state = matcher.start();
  for (int i = 0; i < 300; ++i) {
    state = matcher.Step(state, 'a');
    ASSERT_TRUE(matcher.accepts(state));
  }
  EXPECT_LT(matcher.memory_bytes(), 64 << 20);
}

}  // namespace
}  // namespace nunspark::text
