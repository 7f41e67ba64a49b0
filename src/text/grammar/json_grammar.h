// JSON as expressions of a grammar: what schemas and "any JSON" are made of.
//
// What is written is narrower than what JSON allows, so that a model cannot go on for ever without saying anything, and
// so that a text has one way of being written: white space is at most one blank, or one line break and 20 blanks or
// tabs; numbers have at most 18 digits before and 16 after the point and an exponent of two digits; \u escapes stand
// for whole characters.
#ifndef NUNSPARK_TEXT_GRAMMAR_JSON_GRAMMAR_H_
#define NUNSPARK_TEXT_GRAMMAR_JSON_GRAMMAR_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/grammar/grammar.h"

namespace nunspark::text {

inline constexpr uint32_t kMostIntegerDigits = 18;
inline constexpr uint32_t kMostFractionDigits = 16;

// A bound of a number, as decimal digits: sign, whole part without leading zeros ("0" for none), fraction without
// trailing zeros.
struct Decimal {
  bool negative = false;
  std::string whole = "0";
  std::string fraction{};

  // Nothing for numbers beyond what is written here.
  static std::optional<Decimal> From(const Json& number);
  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
// -1, 0, 1.
int Compare(const Decimal& a, const Decimal& b);

// The parts are made once each, as rules; the builder refers to the grammar and must not outlive it.
class JsonGrammar {
 public:
  explicit JsonGrammar(Grammar& grammar) : g_(grammar) {}

  // Between values; after a colon at most one blank.
  ExprId space();
  ExprId comma();
  ExprId colon();

  ExprId value();
  ExprId object();
  ExprId array();
  ExprId string();
  ExprId number();
  ExprId integer();
  ExprId boolean();
  ExprId null();

  // One character of a string, escaped or not.
  ExprId character();
  // A string of min to max characters.
  ExprId StringOf(uint32_t min, uint32_t max);
  // One character of `ranges` inside a string, written in one way only: as it is, or with JSON's short escape.
  ExprId OneWay(std::vector<CharRange> ranges);
  // A key that is none of `names`, quotes included.
  ExprId KeyExcept(std::span<const std::string> names);
  // A value as WriteJson has it, with space between its parts.
  ExprId Constant(const Json& value);

  // Whole numbers from low to high; nothing: as far as digits are written.
  ExprId IntegerBetween(std::optional<Decimal> low, std::optional<Decimal> high);
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  // Numbers without exponent, with up to so many digits after the point. REQUIRES: bounds with no more of those.
  ExprId NumberBetween(const std::optional<Bound>& low, const std::optional<Bound>& high, uint32_t fraction_digits);

  // '{' space [members space] '}'. `members`: at least one; nothing: none may be there.
  ExprId ObjectOf(std::optional<ExprId> members, bool may_be_empty);
  ExprId ArrayOf(std::optional<ExprId> items, bool may_be_empty);

 private:
  ExprId Digits(uint32_t min, uint32_t max);
  ExprId DigitBetween(char low, char high);
  ExprId SameLength(std::string_view low, std::string_view high);
  ExprId WholeBetween(std::string low, std::string high);
  ExprId FractionTailFrom(std::string_view low, bool exclusive, uint32_t least, uint32_t left);
  ExprId FractionTailTo(std::string_view high, bool exclusive, uint32_t least, uint32_t left);
  ExprId FractionTail(std::string_view low, std::string_view high, bool low_exclusive, bool high_exclusive,
                      uint32_t least, uint32_t left);
  ExprId Positive(const Bound& low, const Bound& high, uint32_t fraction_digits);
  ExprId Enclosed(char open, std::optional<ExprId> inner, bool may_be_empty, char close);

  Grammar& g_;
  std::optional<ExprId> space_, comma_, colon_, value_, object_, array_, string_, number_, integer_, character_;
};

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_JSON_GRAMMAR_H_
