// What schemas mean together: references, allOf, whether two can hold at once.
//
// A *flat* schema is true, false or an object without $ref and allOf. Errors name the place as a JSON pointer.
#ifndef NUNSPARK_TEXT_GRAMMAR_SCHEMA_ALGEBRA_H_
#define NUNSPARK_TEXT_GRAMMAR_SCHEMA_ALGEBRA_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark::text {

// A set of JSON's types. An integer is a number too; kNumber alone stands for all numbers.
enum SchemaType : uint32_t {
  kNullType = 1,
  kBooleanType = 2,
  kIntegerType = 4,
  kNumberType = 8,
  kStringType = 16,
  kArrayType = 32,
  kObjectType = 64,
  kAnyType = 127 - kIntegerType,
};

class SchemaAlgebra {
 public:
  // `root` must outlive this.
  explicit SchemaAlgebra(const Json& root) : root_(root) {}

  // The schema a local reference names. Errors: kUnsupported for other documents and anchors, kInvalidArgument for
  // places that are not there.
  Result<const Json*> Resolve(std::string_view reference, const std::string& where) const;

  // Checks that the schema is one, and that all its keywords can be honoured.
  Status CheckKeywords(const Json& schema, const std::string& where) const;

  Result<Json> Flatten(const Json& schema, const std::string& where) { return Flatten(schema, where, 0); }

  // The flat schema of what both allow. REQUIRES: both flat.
  Result<Json> Merge(const Json& a, const Json& b, const std::string& where);

  // The types of a schema: its own, or those that its other keywords are about.
  Result<uint32_t> TypesOf(const Json& schema, const std::string& where) const;

  // Whether certainly no value that the grammar of one would write is allowed by the other. REQUIRES: both flat.
  Result<bool> Disjoint(const Json& a, const Json& b, const std::string& where, int depth);

  // Spends from what one schema may cost; kResourceExhausted when that is used up.
  Status Spend(const std::string& where);

 private:
  Result<Json> Flatten(const Json& schema, const std::string& where, int depth);
  Status MergeProperties(const Json& a, const Json& b, Json& merged) const;

  const Json& root_;
  int64_t spent_ = 0;
};

// Whether a keyword says something about values, so that it counts beside $ref or anyOf.
bool IsAssertion(std::string_view keyword);
// A schema with only those keywords.
Json AssertionsOf(const Json& schema);
// The type of a value. 1.0 is an integer.
SchemaType TypeOfValue(const Json& value);
std::string PointerTo(const std::string& where, std::string_view key);

}  // namespace nunspark::text

#endif  // NUNSPARK_TEXT_GRAMMAR_SCHEMA_ALGEBRA_H_
