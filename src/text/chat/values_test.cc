// The parts below the interpreter: integers, numbers as text, characters, JSON, dicts, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "text/chat/builtin_tables.h"
#include "text/chat/lexer.h"
#include "text/chat/runtime.h"
#include "text/chat/unicode.h"

namespace nunspark::text::jinja {
namespace {

constexpr CivilTime kNow{2026, 7, 4, 15, 9, 26};

BigInt Big(std::string_view digits) {
  BigInt value;
  EXPECT_TRUE(ParseInteger(digits, 10, &value));
  return value;
}

TEST(BigIntTest, AgreesWithNativeArithmetic) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 2000; ++i) {
    const auto a = static_cast<int64_t>(random()) >> (random() % 63),
               b = static_cast<int64_t>(random()) >> (random() % 63);
    __extension__ using Wide = __int128;
    auto wide = [](const BigInt& v) {
      Wide value = 0;
      for (char c : v.ToString()) value = c == '-' ? value : value * 10 + (c - '0');
      return v.is_negative() ? -value : value;
    };
    EXPECT_TRUE(wide(BigInt::Add(BigInt(a), BigInt(b))) == Wide{a} + b);
    EXPECT_TRUE(wide(BigInt::Multiply(BigInt(a), BigInt(b))) == Wide{a} * b);
    EXPECT_EQ(BigInt::Compare(BigInt(a), BigInt(b)), a < b ? -1 : a > b);
    if (b == 0) continue;
    BigInt q, r;
    BigInt::DivMod(BigInt::Multiply(BigInt(a), BigInt(a)), BigInt(b), &q, &r);
    EXPECT_TRUE(wide(q) * b + wide(r) == Wide{a} * a);
    EXPECT_TRUE(r.is_zero() || r.is_negative() == (b < 0));
  }
}

TEST(BigIntTest, DividesByManyWords) {
  const BigInt a = Big("123456789012345678901234567890123456789012345678901234567890"),
               b = Big("-98765432109876543210987654321");
  BigInt q, r;
  BigInt::DivMod(a, b, &q, &r);
  EXPECT_EQ(BigInt::Add(BigInt::Multiply(q, b), r), a);
  EXPECT_TRUE(r.is_negative());
}

TEST(BigIntTest, ConvertsToDoubleHalfToEven) {
  EXPECT_EQ(Big("9007199254740993").ToDouble(), 9007199254740992.0);
  EXPECT_EQ(Big("9007199254740995").ToDouble(), 9007199254740996.0);
  EXPECT_EQ(Big("18446744073709551617").ToDouble(), 18446744073709551616.0);
  EXPECT_EQ(Big("1" + std::string(400, '0')).ToDouble(), std::nullopt);
  EXPECT_EQ(BigInt::FromDouble(1e25).ToString(), "10000000000000000905969664");
  EXPECT_EQ(BigInt::FromDouble(-7.9).ToString(), "-7");
  EXPECT_EQ(BigInt(INT64_MIN).ToInt64(), INT64_MIN);
  EXPECT_EQ(Big("9223372036854775808").ToInt64(), std::nullopt);
}

TEST(BigIntTest, HasALimit) {
  EXPECT_FALSE(BigInt::FromDigits(std::string(4400, '9'), 10).has_value());
  EXPECT_FALSE(BigInt::FromDigits("12a", 10).has_value());
  EXPECT_EQ(BigInt::FromDigits("ff", 16)->ToString(2), "11111111");
}

TEST(NumberText, FloatsPrintAsInPython) {
  for (const auto& [value, text] :
       std::vector<std::pair<double, std::string>>{{1.0, "1.0"},
                                                   {0.1, "0.1"},
                                                   {-0.0, "-0.0"},
                                                   {1e16, "1e+16"},
                                                   {1e15, "1000000000000000.0"},
                                                   {123456789.123, "123456789.123"},
                                                   {1e-5, "1e-05"},
                                                   {0.0001, "0.0001"},
                                                   {1e22, "1e+22"},
                                                   {5e-324, "5e-324"},
                                                   {1.7976931348623157e308, "1.7976931348623157e+308"},
                                                   {12345678901234568.0, "1.2345678901234568e+16"},
                                                   {INFINITY, "inf"},
                                                   {-INFINITY, "-inf"},
                                                   {NAN, "nan"}}) {
    EXPECT_EQ(FloatRepr(value), text);
  }
}

TEST(NumberText, ParsesWhatPythonParses) {
  double value = 0;
  for (const char* text : {"1", " 1.5 ", "1e5", ".5", "5.", "1_000.5", "+3", "-inf", "Infinity", "nan", "\u0661.5"})
    EXPECT_TRUE(ParseFloat(text, &value)) << text;
  for (const char* text : {"", "x", "1e", "1__0", "_1", "1_", "0x10", "1 2", ".", "+-1"})
    EXPECT_FALSE(ParseFloat(text, &value)) << text;
  BigInt integer;
  for (const char* text : {"1", " -7 ", "1_000", "007", "\u0663"})
    EXPECT_TRUE(ParseInteger(text, 10, &integer)) << text;
  for (const char* text : {"", "1.0", "0x1f", "1__0", "- 1", "x", "_1"})
    EXPECT_FALSE(ParseInteger(text, 10, &integer)) << text;
  EXPECT_TRUE(ParseInteger("0x1f", 16, &integer) && integer == BigInt(31));
  EXPECT_TRUE(ParseInteger("0o17", 0, &integer) && integer == BigInt(15));
  EXPECT_FALSE(ParseInteger("017", 0, &integer));
}

TEST(Characters, MapCaseAsPythonDoes) {
  EXPECT_EQ(Upper("stra\u00dfe \ufb03 \u01c6"), "STRASSE FFI \u01c4");
  EXPECT_EQ(Lower("\u0130I \u03a3 \u0391\u03a3 \u0391\u03a3\u0391"), "i\u0307i \u03c3 \u03b1\u03c2 \u03b1\u03c3\u03b1");
  EXPECT_EQ(Title("they're \u01c6x \u00e9t\u00c9"), "They'Re \u01c5x \u00c9t\u00e9");
  EXPECT_EQ(Capitalize("\u00e9COLE"), "\u00c9cole");
  EXPECT_EQ(SwapCase("aB\u00df"), "AbSS");
  EXPECT_EQ(CaseFold("Stra\u00dfe"), "strasse");
}

TEST(Characters, HaveClasses) {
  EXPECT_TRUE(IsSpace(0x3000) && IsSpace(0x1F) && IsSpace(0x85) && !IsSpace(0x200B));
  EXPECT_TRUE(IsDigit(0xB2) && !IsDecimal(0xB2) && IsNumeric(0x4E94) && !IsDigit(0x4E94));
  EXPECT_TRUE(IsUpper(0x2160) && IsLower(0xAA) && IsTitle(0x1C5) && !IsUpper(0x1C5));
  EXPECT_TRUE(IsPrintable(' ') && !IsPrintable(0xA0) && !IsPrintable(0xD800) && IsPrintable(0x1F600));
  for (uint32_t zero : {0x30u, 0x660u, 0x966u, 0xFF10u, 0x1D7CEu, 0x1D7D8u, 0x1D7F6u}) {
    for (uint32_t d = 0; d < 10; ++d) EXPECT_EQ(DecimalValue(zero + d), static_cast<int>(d)) << zero;
  }
}

TEST(Characters, SurrogatesPassAndBadBytesDoNot) {
  std::string text;
  AppendCodePoint(0xD83D, text);
  EXPECT_EQ(text, "\xED\xA0\xBD");
  size_t i = 0;
  EXPECT_EQ(NextCodePoint(text, &i), 0xD83Du);
  EXPECT_EQ(i, 3u);
  EXPECT_TRUE(HasSurrogates(text) && !HasSurrogates("\xED\x9F\xBF"));
  EXPECT_EQ(ToValidText("a\xFF"), "a\xEF\xBF\xBD");
  EXPECT_EQ(StringRepr(text + "\n\x01'"), "\"\\ud83d\\n\\x01'\"");
}

TEST(LexerTest, AppliesWhiteSpaceRules) {
  std::vector<Token> tokens;
  TemplateError error;
  ASSERT_TRUE(Tokenize("a\r\n  {%- x -%}  b\n\t{% y %}\n{{ z }}\n", &tokens, &error));
  std::string data;
  for (const Token& token : tokens) {
    if (token.kind == TokenKind::kData) data += "[" + token.text + "]";
  }
  EXPECT_EQ(data, "[a][b\n]");
  EXPECT_EQ(tokens.back().kind, TokenKind::kEnd);
}

TEST(LexerTest, RefusesWhatIsNotClosed) {
  for (const char* source :
       {"{# x", "{% raw %} x", "{{ 'x }}", "{{ ) }}", "{{ (] }}", "{{ ! }}", "{{ '\\x1' }}", "{{ '\\U00110000' }}"}) {
    std::vector<Token> tokens;
    TemplateError error;
    EXPECT_FALSE(Tokenize(source, &tokens, &error)) << source;
    EXPECT_EQ(error.type, "TemplateSyntaxError");
  }
}

TEST(JsonText, ReadsAsPythonDoes) {
  Runtime runtime({}, kNow);
  const Value value = ParseJsonValue(
      runtime,
      R"( {"a": [1, -0, 1.0, 1e2, true, null, NaN, 123456789012345678901], "b\u00e9\ud83d\ude00": "\n", "a": {}} )");
  ASSERT_FALSE(value.failed()) << runtime.error().message;
  std::string text;
  runtime.AppendRepr(value, text);
  EXPECT_EQ(text, "{'a': {}, 'b\u00e9\U0001f600': '\\n'}");
}

TEST(JsonText, RefusesEveryCut) {
  const std::string source = R"({"a": [1, -2.5e3, "x\u00e9", true, null], "b": {"c": "d"}})";
  for (size_t i = 0; i < source.size(); ++i) {
    Runtime runtime({}, kNow);
    EXPECT_TRUE(ParseJsonValue(runtime, source.substr(0, i)).failed()) << i;
    EXPECT_EQ(runtime.error().type, "JSONDecodeError");
  }
  for (const char* bad : {"01", "1.", ".5", "+1", "[1,]", "{\"a\":1,}", "\"\t\"", "'a'", "\"\\x\"", "[1] 2", "{1: 2}",
                          "tru", "-", "\"\\u12\""}) {
    Runtime runtime({}, kNow);
    EXPECT_TRUE(ParseJsonValue(runtime, bad).failed()) << bad;
  }
  Runtime runtime({}, kNow);
  EXPECT_TRUE(ParseJsonValue(runtime, std::string(100000, '[')).failed());
}

TEST(Dicts, KeysAreEqualAsInPython) {
  Runtime runtime({}, kNow);
  auto* dict = new DictObject();
  runtime.SetKey(*dict, Value::Int(1), Value::Int(10));
  runtime.SetKey(*dict, Value::Bool(true), Value::Int(20));
  runtime.SetKey(*dict, Value::Float(1.0), Value::Int(30));
  for (int i = 2; i < 500; ++i) runtime.SetKey(*dict, Value::Int(i), Value::Int(i));
  const Value value = runtime.Seal(dict);
  EXPECT_EQ(dict->entries.size(), 499u);
  uint64_t hash = 0;
  ASSERT_TRUE(HashValue(Value::Float(400), &hash));
  EXPECT_EQ(dict->Find(Value::Float(400), hash)->small_int(), 400);
  EXPECT_FALSE(runtime.SetKey(*dict, runtime.List({}), Value::None()));
  EXPECT_EQ(runtime.error().message, "unhashable type: 'list'");
}

TEST(HeapTest, FreesLongChainsAndCycles) {
  Runtime runtime({}, kNow);
  {
    // An iterator chain as deep as no stack: freed without recursion.
    Value chain = runtime.List({});
    for (int i = 0; i < 200'000; ++i) {
      chain = MakeGenerator(runtime, "generator", {chain}, [](Runtime&, Values&, Cursor&, Value*) { return false; });
    }
  }
  auto* space = new NamespaceObject();
  const Value cycle = runtime.Adopt(space);
  auto* attributes = new DictObject();
  space->attributes = runtime.Adopt(attributes);
  runtime.SetText(*attributes, "me", cycle);
  EXPECT_FALSE(runtime.heap().exhausted());
}

TEST(TimeText, FormatsAsStrftimeDoes) {
  EXPECT_EQ(FormatTime(kNow, "%a %A %b %B %d %e %j %y %Y %H %I %M %S %p %u %w %U %W %V %G %%"),
            "Sat Saturday Jul July 04  4 185 26 2026 15 03 09 26 PM 6 6 26 26 27 2026 %");
  EXPECT_EQ(FormatTime(kNow, "%F %T %D %R %c|%x|%X|%-d|%_m|%Q|%"),
            "2026-07-04 15:09:26 07/04/26 15:09 Sat Jul  4 15:09:26 2026|07/04/26|15:09:26|4| 7|%Q|%");
  EXPECT_EQ(FormatTime({2027, 1, 1, 0, 0, 0}, "%G-%V %U %W %I %p"), "2026-53 00 00 12 AM");
  EXPECT_EQ(FormatTime({2024, 12, 30, 12, 0, 0}, "%G-%V %j %s"), "2025-01 365 1735560000");
}

}  // namespace
}  // namespace nunspark::text::jinja
