#include "text/grammar/json_schema.h"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/grammar/matching_testing.h"
#include "text/grammar/schema_suite_testing.h"
#include "text/grammar/schema_validator_testing.h"

namespace nunspark::text {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchema, AllowsWhatTheSchemaAllowsAndNothingElse) {
  EXPECT_GE(testing::SchemaSuite().size(), 60u);
  for (const testing::SchemaCase& c : testing::SchemaSuite()) {
    const Result<Automaton> automaton = testing::SchemaAutomaton(c.schema);
    ASSERT_TRUE(automaton.ok()) << c.schema << ": " << automaton.status().message();
    for (const std::string& text : c.good) EXPECT_TRUE(testing::Matches(*automaton, text)) << c.schema << " | " << text;
    for (const std::string& text : c.bad) EXPECT_FALSE(testing::Matches(*automaton, text)) << c.schema << " | " << text;
  }
}

TEST(JsonSchema, SamplesOfTheSuiteAreWhatTheValidatorAllows) {
  for (const testing::SchemaCase& c : testing::SchemaSuite()) {
    const Json schema = testing::ParseValue(c.schema).value();
    for (const std::string& text : c.good) {
      EXPECT_TRUE(testing::SchemaValidator(schema).Valid(testing::ParseValue(text).value()))
          << c.schema << " | " << text;
    }
  }
}

// Every number near a bound is allowed exactly when it lies inside.
TEST(JsonSchema, KeepsNumbersInsideTheirBounds) {
  for (const auto& [low, high] : {std::pair(-120, 7), std::pair(0, 0), std::pair(99, 1001), std::pair(-1005, -98)}) {
    const std::string bounds = R"("minimum":)" + std::to_string(low) + R"(,"maximum":)" + std::to_string(high) + "}";
    const Result<Automaton> integers = testing::SchemaAutomaton(R"({"type":"integer",)" + bounds);
    const Result<Automaton> numbers = testing::SchemaAutomaton(R"({"type":"number",)" + bounds);
    ASSERT_TRUE(integers.ok() && numbers.ok());
    for (int value = -1200; value <= 1200; ++value) {
      const bool inside = low <= value && value <= high;
      EXPECT_EQ(testing::Matches(*integers, std::to_string(value)), inside) << value << " in " << bounds;
      EXPECT_EQ(testing::Matches(*numbers, std::to_string(value)), inside) << value << " in " << bounds;
      const double half = value + 0.5;
      EXPECT_EQ(testing::Matches(*numbers, std::to_string(half)), low <= half && half <= high) << half;
    }
  }
  for (const auto& [low, high] : {std::pair(-0.35, 1.27), std::pair(1.005, 1.05), std::pair(-2.5, -2.25)}) {
    for (const bool exclusive : {false, true}) {
      const std::string name = exclusive ? "exclusiveM" : "m";
      const Result<Automaton> numbers = testing::SchemaAutomaton(
          fmt::format(R"({{"type":"number","{}inimum":{},"{}aximum":{}}})", name, low, name, high));
      ASSERT_TRUE(numbers.ok());
      for (int thousandths = -3000; thousandths <= 3000; ++thousandths) {
        const std::string text = fmt::format("{}{}.{:03}", thousandths < 0 ? "-" : "", std::abs(thousandths) / 1000,
                                             std::abs(thousandths) % 1000);
        const double value = std::stod(text);
        const bool inside = exclusive ? low < value && value < high : low <= value && value <= high;
        EXPECT_EQ(testing::Matches(*numbers, text), inside) << text << " in " << low << " " << high << exclusive;
      }
    }
  }
}

TEST(JsonSchema, NumbersTooLargeForADoubleAreNoDigits) {
  const Result<Automaton> bounded = testing::SchemaAutomaton(R"({"type":"number","maximum":1e300121})");
  ASSERT_TRUE(bounded.ok()) << bounded.status().message();
  EXPECT_TRUE(testing::Matches(*bounded, "5"));
  EXPECT_FALSE(testing::Matches(*bounded, "]00"));
  const Result<Automaton> values = testing::SchemaAutomaton(R"({"enum":[1e400,2]})");
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_TRUE(testing::Matches(*values, "2"));
  EXPECT_FALSE(testing::Matches(*values, "null"));
  EXPECT_FALSE(testing::SchemaAutomaton(R"({"type":"number","minimum":1e400})").ok());
}

TEST(JsonSchema, NamesKeywordAndPlaceOfWhatItCannotHonour) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not":{}})", "schema at #: 'not' cannot be honoured"},
      {R"({"type":"object","properties":{"a/b":{"if":true}}})", "schema at #/properties/a~1b: 'if' cannot"},
      {R"({"type":"array","uniqueItems":true})", "schema at #: 'uniqueItems' cannot"},
      {R"({"type":"array","contains":{}})", "'contains'"},
      {R"({"type":"array","items":{"dependentRequired":{}}})", "schema at #/items: 'dependentRequired'"},
      {R"({"type":"string","format":"iri"})", R"('format' "iri")"},
      {R"~({"type":"string","pattern":"(?=a)"})~", "'pattern': column 2 of the pattern: a group that begins with '?'"},
      {R"({"type":"string","pattern":"a\\b"})", "\\b cannot be honoured"},
      {R"({"type":"string","pattern":"^a*$","maxLength":3})", "'maxLength' beside a 'pattern'"},
      {R"({"type":"integer","multipleOf":7})", "'multipleOf' 7"},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "'oneOf' whose branches 0 and 1 may both hold"},
      {R"({"oneOf":[{"properties":{"a":{}},"required":["a"]},{"type":"object","properties":{"b":{}}}]})", "'oneOf'"},
      {R"({"$ref":"other.json"})", "'$ref' to 'other.json' cannot"},
      {R"({"type":"object","properties":{"a":{}},"minProperties":2})", "'minProperties' 2"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})", "two values of 'pattern'"},
      {R"({"type":"array","items":[{}]})", "use 'prefixItems'"},
      {R"({"enum":["a"],"pattern":"a"})", "'pattern' beside 'enum'"},
  };
  for (const auto& [schema, message] : cases) {
    const Result<Automaton> automaton = testing::SchemaAutomaton(schema);
    ASSERT_FALSE(automaton.ok()) << schema;
    EXPECT_EQ(automaton.status().code(), StatusCode::kUnsupported) << schema << automaton.status().message();
    EXPECT_THAT(automaton.status().message(), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchema, SaysWhatIsWrongWithWhatIsNoSchema) {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "the schema"},
      {"[]", "schema at #: expected an object or a boolean, found array"},
      {R"({"type":"strin"})", "'type' must be null, boolean"},
      {R"({"type":"object","properties":[]})", "'properties' must be an object of schemas, found an empty list"},
      {R"({"type":"object","required":[1]})", "'required' must be a list of strings"},
      {R"({"anyOf":[]})", "'anyOf' must be a list of schemas, found an empty list"},
      {R"({"type":"string","minLength":-1})", "'minLength' must be a whole number from 0"},
      {R"({"$ref":"#/$defs/no"})", "'$ref' to '#/$defs/no', which is not there"},
      {R"({"$ref":"#"})", "can never be complete"},
      {R"({"allOf":[{"$ref":"#"}]})", "lead back to it"},
      {R"({"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]}},"$ref":"#/$defs/a"})", "begins with itself"},
      {R"({"type":"string","pattern":"(a"})", "expected ')'"},
      {R"({"type":"string","pattern":"(a*)*"})", "repeats a part that may be empty"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "can never be complete"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})", "can never be complete"},
      {"false", "can never be complete"},
  };
  for (const auto& [schema, message] : cases) {
    const Result<Automaton> automaton = testing::SchemaAutomaton(schema);
    ASSERT_FALSE(automaton.ok()) << schema;
    EXPECT_THAT(automaton.status().message(), HasSubstr(message)) << schema;
  }
}

TEST(JsonSchema, EndsSoonOnSchemasMadeToBlowUp) {
  std::string doubling = R"({"$defs":{"a0":{"minLength":1})";
  for (int i = 1; i < 40; ++i) {
    const std::string before = fmt::format(R"({{"$ref":"#/$defs/a{}"}})", i - 1);
    doubling += fmt::format(R"(,"a{}":{{"allOf":[{},{}]}})", i, before, before);
  }
  doubling += R"(},"$ref":"#/$defs/a39"})";
  EXPECT_FALSE(testing::SchemaAutomaton(doubling).ok());

  std::string deep = R"({"type":"null"})";
  for (int i = 0; i < 150; ++i) deep = R"({"type":"array","items":)" + deep + "}";
  EXPECT_THAT(testing::MessageOf(testing::SchemaAutomaton(deep)), HasSubstr("deep"));

  std::string wide = R"({"type":"object","properties":{)";
  for (int i = 0; i < 3000; ++i) wide += fmt::format(R"({}"p{}":{{"type":"string"}})", i == 0 ? "" : ",", i);
  const Result<Automaton> many = testing::SchemaAutomaton(wide + "}}");
  ASSERT_TRUE(many.ok()) << many.status().message();
  EXPECT_TRUE(testing::Matches(*many, R"({"p7":"","p2999":"x"})"));

  // Any number of each of two that begin alike, a million times.
  const Result<Automaton> ambiguous =
      testing::SchemaAutomaton(R"({"type":"string","pattern":"^((a|aa){0,1000}){0,1000}a$"})");
  EXPECT_FALSE(ambiguous.ok());
  const Result<Automaton> counted =
      testing::SchemaAutomaton(R"({"type":"string","pattern":"^((a|aa){1,1000}b?){1,1000}$"})");
  ASSERT_TRUE(counted.ok()) << counted.status().message();
  EXPECT_TRUE(testing::Matches(*counted, "\"" + std::string(200, 'a') + "b\""));
}

}  // namespace
}  // namespace nunspark::text
