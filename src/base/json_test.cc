#include "base/json.h"

#include <gtest/gtest.h>

namespace nunspark {
namespace {

TEST(Json, ReadsBackWhatItWrites) {
  const std::string text = R"({"a":[1,-2,0.5,true,null,"x\n\"é"],"b":{"c":{}},"d":[]})";
  const Result<Json> parsed = ParseJson(text, "test");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(WriteJson(*parsed), text);
}

TEST(Json, KeepsTheLastValueOfARepeatedKey) {
  const Result<Json> parsed = ParseJson(R"({"a":1,"b":2,"a":3})", "test");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(WriteJson(*parsed), R"({"a":3,"b":2})");
}

TEST(Json, RefusesEveryTruncation) {
  const std::string text = R"({"a":[1,{"b":"cd"}],"e":-1.5e3,"f":false})";
  for (size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(ParseJson(text.substr(0, length), "test").ok()) << length;
  }
}

TEST(Json, RefusesMalformedDocuments) {
  for (const char* text :
       {"",        " ",       "1 2",       "{} {}",      "[1,]",      "[01]",    "[1.]",    "[-]",    "[nul]",
        "[tru e]", "{\"a\"}", "{a:1}",     "[\"\x01\"]", "[\"\\x\"]", "[+1]",    "[.5]",    "[1e]",   "[NaN]",
        "[1f]",    "[1 2]",   "[12\"a\"]", "{\"a\":1x}", "[1\x02]",   "[true1]", "[truex]", "[null0]"}) {
    EXPECT_FALSE(ParseJson(text, "test").ok()) << text;
  }
}

TEST(Json, TakesWhiteSpaceAroundEverything) {
  const Result<Json> parsed = ParseJson(" [ 1 , -2.5\t,\r\n true\n, null ,\"a\" , { \"b\" : 3 \r} ] \n", "test");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(WriteJson(*parsed), R"([1,-2.5,true,null,"a",{"b":3}])");
}

TEST(Json, RefusesDeepNesting) {
  EXPECT_FALSE(ParseJson(std::string(100000, '['), "test").ok());
  const std::string deep = std::string(600, '[') + std::string(600, ']');
  EXPECT_FALSE(ParseJson(deep, "test").ok());
}

TEST(Json, BigIntegersBecomeDoubles) {
  const Result<Json> parsed = ParseJson("[9223372036854775807, 9223372036854775808]", "test");
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->as_array()[0].as_int(), 9223372036854775807);
  EXPECT_DOUBLE_EQ(parsed->as_array()[1].as_double(), 9223372036854775808.0);
}

TEST(Json, DoublesStayDoubles) {
  for (const char* const text :
       {"[1.0]", "[-0.0]", "[1000000.0]", "[1e+16]", "[0.1]", "[1e-05]", "[-3.5]", "[1e+300]"}) {
    const Result<Json> parsed = ParseJson(text, "test");
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(WriteJson(*parsed), text);
    EXPECT_TRUE(parsed->as_array()[0].is_double());
  }
}

}  // namespace
}  // namespace nunspark
