#include "text/grammar/schema_algebra.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace nunspark::text {
namespace {

constexpr int kMostDepth = 64;
constexpr int64_t kMostSchemas = 50'000;

struct NamedType {
  std::string_view name;
  uint32_t type;
};
constexpr NamedType kTypes[] = {{"null", kNullType},     {"boolean", kBooleanType}, {"integer", kIntegerType},
                                {"number", kNumberType}, {"string", kStringType},   {"array", kArrayType},
                                {"object", kObjectType}};

// What a keyword's value must be.
enum class Shape : uint8_t {
  kAny,
  kSchema,
  kSchemas,
  kSchemaMap,
  kCount,
  kNumber,
  kString,
  kStrings,
  kList,
  kBool,
  kBoolOrNumber
};
enum class Role : uint8_t { kAssertion, kRefused };
struct Keyword {
  std::string_view name;
  Shape shape;
  Role role = Role::kAssertion;
  uint32_t types = 0;  // that it is about
};
constexpr Keyword kKeywords[] = {
    {"$ref", Shape::kString},
    {"allOf", Shape::kSchemas},
    {"anyOf", Shape::kSchemas},
    {"oneOf", Shape::kSchemas},
    {"type", Shape::kAny},
    {"nullable", Shape::kBool},
    {"enum", Shape::kList},
    {"const", Shape::kAny},
    {"properties", Shape::kSchemaMap, Role::kAssertion, kObjectType},
    {"required", Shape::kStrings, Role::kAssertion, kObjectType},
    {"additionalProperties", Shape::kSchema, Role::kAssertion, kObjectType},
    {"unevaluatedProperties", Shape::kSchema, Role::kAssertion, kObjectType},
    {"patternProperties", Shape::kSchemaMap, Role::kAssertion, kObjectType},
    {"propertyNames", Shape::kSchema, Role::kAssertion, kObjectType},
    {"minProperties", Shape::kCount, Role::kAssertion, kObjectType},
    {"maxProperties", Shape::kCount, Role::kAssertion, kObjectType},
    {"items", Shape::kSchema, Role::kAssertion, kArrayType},
    {"prefixItems", Shape::kSchemas, Role::kAssertion, kArrayType},
    {"minItems", Shape::kCount, Role::kAssertion, kArrayType},
    {"maxItems", Shape::kCount, Role::kAssertion, kArrayType},
    {"uniqueItems", Shape::kBool, Role::kAssertion, kArrayType},
    {"minLength", Shape::kCount, Role::kAssertion, kStringType},
    {"maxLength", Shape::kCount, Role::kAssertion, kStringType},
    {"pattern", Shape::kString, Role::kAssertion, kStringType},
    {"format", Shape::kString, Role::kAssertion, kStringType},
    {"minimum", Shape::kNumber, Role::kAssertion, kNumberType},
    {"maximum", Shape::kNumber, Role::kAssertion, kNumberType},
    {"exclusiveMinimum", Shape::kBoolOrNumber, Role::kAssertion, kNumberType},
    {"exclusiveMaximum", Shape::kBoolOrNumber, Role::kAssertion, kNumberType},
    {"multipleOf", Shape::kNumber, Role::kAssertion, kNumberType},
    {"not", Shape::kAny, Role::kRefused},
    {"if", Shape::kAny, Role::kRefused},
    {"then", Shape::kAny, Role::kRefused},
    {"else", Shape::kAny, Role::kRefused},
    {"dependentRequired", Shape::kAny, Role::kRefused},
    {"dependentSchemas", Shape::kAny, Role::kRefused},
    {"dependencies", Shape::kAny, Role::kRefused},
    {"contains", Shape::kAny, Role::kRefused},
    {"minContains", Shape::kAny, Role::kRefused},
    {"maxContains", Shape::kAny, Role::kRefused},
    {"unevaluatedItems", Shape::kAny, Role::kRefused},
    {"additionalItems", Shape::kAny, Role::kRefused},
    {"$dynamicRef", Shape::kAny, Role::kRefused},
    {"$recursiveRef", Shape::kAny, Role::kRefused},
};

const Keyword* FindKeyword(std::string_view name) {
  for (const Keyword& keyword : kKeywords) {
    if (keyword.name == name) return &keyword;
  }
  return nullptr;
}

bool IsSchema(const Json& value) { return value.is_object() || value.is_bool(); }
bool IsCount(const Json& value) {
  if (value.is_int()) return value.as_int() >= 0;
  return value.is_double() && value.as_double() >= 0 && value.as_double() < 1e18 &&
         value.as_double() == std::floor(value.as_double());
}

// What was expected when the value is something else, else nothing.
std::string_view Mismatch(const Json& value, Shape shape) {
  const auto all = [&](auto check) {
    return value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(), check);
  };
  switch (shape) {
    case Shape::kAny: return "";
    case Shape::kSchema: return IsSchema(value) ? "" : "a schema";
    case Shape::kSchemas: return all(IsSchema) && !value.as_array().empty() ? "" : "a list of schemas";
    case Shape::kSchemaMap:
      return value.is_object() && std::all_of(value.as_object().begin(), value.as_object().end(),
                                              [](const Json::Member& member) { return IsSchema(member.second); })
                 ? ""
                 : "an object of schemas";
    case Shape::kCount: return IsCount(value) ? "" : "a whole number from 0";
    case Shape::kNumber: return value.is_number() ? "" : "a number";
    case Shape::kString: return value.is_string() ? "" : "a string";
    case Shape::kStrings: return all([](const Json& item) { return item.is_string(); }) ? "" : "a list of strings";
    case Shape::kList: return value.is_array() && !value.as_array().empty() ? "" : "a list of values";
    case Shape::kBool: return value.is_bool() ? "" : "true or false";
    case Shape::kBoolOrNumber: return value.is_bool() || value.is_number() ? "" : "a number";
  }
  return "";
}

// Types with kNumberType covering kIntegerType.
uint32_t Overlap(uint32_t a, uint32_t b) {
  uint32_t both = a & b;
  if ((a & kNumberType) != 0 && (b & kIntegerType) != 0) both |= kIntegerType;
  if ((b & kNumberType) != 0 && (a & kIntegerType) != 0) both |= kIntegerType;
  return (both & kNumberType) != 0 ? both & ~uint32_t{kIntegerType} : both;
}

Json TypeList(uint32_t types) {
  Json::Array list;
  for (const NamedType& type : kTypes) {
    if ((types & type.type) != 0) list.emplace_back(std::string(type.name));
  }
  return Json(std::move(list));
}

Json AllOf(const Json& a, const Json& b) {
  if (a == b) return a;
  Json both(Json::Object{});
  both.Set("allOf", Json(Json::Array{a, b}));
  return both;
}

// The values of enum and const; nothing where there is neither.
const Json* Values(const Json& schema, Json& storage) {
  const Json* constant = schema.Find("const");
  const Json* list = schema.Find("enum");
  if (constant == nullptr) return list;
  Json::Array values;
  if (list == nullptr ||
      std::find(list->as_array().begin(), list->as_array().end(), *constant) != list->as_array().end()) {
    values.push_back(*constant);
  }
  storage = Json(std::move(values));
  return &storage;
}

bool IsRequired(const Json& schema, std::string_view name) {
  const Json* required = schema.Find("required");
  return required != nullptr && std::any_of(required->as_array().begin(), required->as_array().end(),
                                            [&](const Json& item) { return item.as_string() == name; });
}

// Whether one requires a property that the other cannot have.
bool RequiresUnknown(const Json& a, const Json& b) {
  const Json* required = a.Find("required");
  const Json* properties = b.Find("properties");
  if (required == nullptr) return false;
  return std::any_of(required->as_array().begin(), required->as_array().end(), [&](const Json& name) {
    return properties == nullptr || properties->Find(name.as_string()) == nullptr;
  });
}

bool IsClosed(const Json& schema) {
  const Json* additional = schema.Find("additionalProperties");
  return additional != nullptr && additional->is_bool() && !additional->as_bool() &&
         schema.Find("patternProperties") == nullptr;
}

// Whether the grammar of the schema writes no properties but those it names.
bool WritesOnlyNamed(const Json& schema) {
  return schema.Find("properties") != nullptr && schema.Find("patternProperties") == nullptr &&
         (schema.Find("additionalProperties") == nullptr || IsClosed(schema));
}

}  // namespace

bool IsAssertion(std::string_view keyword) { return FindKeyword(keyword) != nullptr; }

Json AssertionsOf(const Json& schema) {
  Json::Object kept;
  for (const auto& [key, value] : schema.as_object()) {
    if (IsAssertion(key)) kept.emplace_back(key, value);
  }
  return Json(std::move(kept));
}

SchemaType TypeOfValue(const Json& value) {
  if (value.is_null()) return kNullType;
  if (value.is_bool()) return kBooleanType;
  if (value.is_int()) return kIntegerType;
  if (value.is_double()) return value.as_double() == std::floor(value.as_double()) ? kIntegerType : kNumberType;
  if (value.is_string()) return kStringType;
  return value.is_array() ? kArrayType : kObjectType;
}

std::string PointerTo(const std::string& where, std::string_view key) {
  std::string pointer = where + "/";
  for (const char c : key) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
  return pointer;
}

Status SchemaAlgebra::Spend(const std::string& where) {
  if (++spent_ <= kMostSchemas) return Status();
  return ResourceExhaustedError(fmt::format("schema at {}: more than {} schemas together", where, kMostSchemas));
}

Result<const Json*> SchemaAlgebra::Resolve(std::string_view reference, const std::string& where) const {
  if (reference.empty() || reference[0] != '#' || (reference.size() > 1 && reference[1] != '/')) {
    return UnsupportedError(fmt::format(
        "schema at {}: '$ref' to '{}' cannot be honoured, only places of this schema (#/...)", where, reference));
  }
  const Json* at = &root_;
  for (size_t begin = 2; begin <= reference.size() && reference.size() > 1;) {
    const size_t end = std::min(reference.find('/', begin), reference.size());
    std::string key;
    for (size_t i = begin; i < end; ++i) {
      const std::string_view rest = reference.substr(i, end - i);
      if (rest.starts_with("~1") || rest.starts_with("~0")) {
        key += rest[1] == '1' ? '/' : '~';
        ++i;
      } else if (rest[0] == '%' && rest.size() > 2 && std::isxdigit(static_cast<unsigned char>(rest[1])) != 0 &&
                 std::isxdigit(static_cast<unsigned char>(rest[2])) != 0) {
        key += static_cast<char>(std::stoi(std::string(rest.substr(1, 2)), nullptr, 16));
        i += 2;
      } else {
        key += rest[0];
      }
    }
    const Json* next = nullptr;
    if (at->is_array()) {
      const bool number = !key.empty() && key.size() < 7 && key.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = number ? std::stoul(key) : SIZE_MAX;
      if (index < at->as_array().size()) next = &at->as_array()[index];
    } else {
      next = at->Find(key);
    }
    if (next == nullptr) {
      return InvalidArgumentError(fmt::format("schema at {}: '$ref' to '{}', which is not there", where, reference));
    }
    at = next;
    begin = end + 1;
  }
  return at;
}

Status SchemaAlgebra::CheckKeywords(const Json& schema, const std::string& where) const {
  if (schema.is_bool()) return Status();
  if (!schema.is_object()) {
    return InvalidArgumentError(
        fmt::format("schema at {}: expected an object or a boolean, found {}", where, schema.TypeName()));
  }
  for (const auto& [key, value] : schema.as_object()) {
    const Keyword* keyword = FindKeyword(key);
    if (keyword == nullptr) continue;
    if (keyword->role == Role::kRefused) {
      return UnsupportedError(fmt::format("schema at {}: '{}' cannot be honoured", where, key));
    }
    const std::string_view expected = Mismatch(value, keyword->shape);
    if (expected.empty()) continue;
    // Lists of schemas in "items" are what "prefixItems" was called before draft 2020-12.
    if (key == "items" && value.is_array()) {
      return UnsupportedError(
          fmt::format("schema at {}: 'items' with a list cannot be honoured, use 'prefixItems'", where));
    }
    return InvalidArgumentError(
        fmt::format("schema at {}: '{}' must be {}, found {}", where, key, expected,
                    value.is_array() && value.as_array().empty() ? "an empty list" : value.TypeName()));
  }
  return Status();
}

Result<uint32_t> SchemaAlgebra::TypesOf(const Json& schema, const std::string& where) const {
  if (schema.is_bool()) return schema.as_bool() ? uint32_t{kAnyType} : 0u;
  uint32_t types = 0;
  const Json* named = schema.Find("type");
  if (named != nullptr) {
    const auto add = [&](const Json& name) {
      for (const NamedType& type : kTypes) {
        if (name.is_string() && name.as_string() == type.name) {
          types |= type.type;
          return true;
        }
      }
      return false;
    };
    const bool good =
        named->is_array() ? std::all_of(named->as_array().begin(), named->as_array().end(), add) : add(*named);
    if (!good) {
      return InvalidArgumentError(
          fmt::format("schema at {}: 'type' must be null, boolean, integer, number, string, "
                      "array, object or a list of these, found {}",
                      where, WriteJson(*named)));
    }
  }
  Json storage;
  const Json* values = Values(schema, storage);
  if (values != nullptr) {
    uint32_t of_values = 0;
    for (const Json& value : values->as_array()) of_values |= TypeOfValue(value);
    return named == nullptr ? of_values : Overlap(of_values, types);
  }
  if (named == nullptr) {
    for (const auto& [key, value] : schema.as_object()) {
      const Keyword* keyword = FindKeyword(key);
      if (keyword != nullptr) types |= keyword->types;
    }
    if (types == 0) types = kAnyType;
  }
  const Json* nullable = schema.Find("nullable");
  if (nullable != nullptr && nullable->as_bool()) types |= kNullType;
  if ((types & kNumberType) != 0) types &= ~uint32_t{kIntegerType};
  return types;
}

Result<Json> SchemaAlgebra::Flatten(const Json& schema, const std::string& where, int depth) {
  RETURN_IF_ERROR(Spend(where));
  RETURN_IF_ERROR(CheckKeywords(schema, where));
  if (schema.is_bool()) return schema;
  if (depth > kMostDepth) {
    return InvalidArgumentError(
        fmt::format("schema at {}: '$ref' and 'allOf' lead back to it, or more than {} deep", where, kMostDepth));
  }
  Json flat(Json::Object{});
  for (const auto& [key, value] : schema.as_object()) {
    if (IsAssertion(key) && key != "$ref" && key != "allOf") flat.as_object().emplace_back(key, value);
  }
  std::vector<std::pair<const Json*, std::string>> parts;
  if (const Json* reference = schema.Find("$ref"); reference != nullptr) {
    ASSIGN_OR_RETURN(const Json* target, Resolve(reference->as_string(), where));
    parts.emplace_back(target, reference->as_string());
  }
  if (const Json* all = schema.Find("allOf"); all != nullptr) {
    for (size_t i = 0; i < all->as_array().size(); ++i) {
      parts.emplace_back(&all->as_array()[i], fmt::format("{}/allOf/{}", where, i));
    }
  }
  // Properties come in the order of the parts, those beside them last, as they are usually written.
  for (size_t i = parts.size(); i-- > 0;) {
    ASSIGN_OR_RETURN(const Json part, Flatten(*parts[i].first, parts[i].second, depth + 1));
    ASSIGN_OR_RETURN(flat, Merge(part, flat, where));
    if (flat.is_bool()) return flat;
  }
  return flat;
}

Status SchemaAlgebra::MergeProperties(const Json& a, const Json& b, Json& merged) const {
  const Json* ours = a.Find("properties");
  const Json* theirs = b.Find("properties");
  Json properties(Json::Object{});
  const auto add = [&](const Json* from, const Json* other, const Json& other_schema) {
    if (from == nullptr) return;
    const Json* rest = other_schema.Find("additionalProperties");
    for (const auto& [name, schema] : from->as_object()) {
      if (properties.Find(name) != nullptr) continue;
      const Json* same = other == nullptr ? nullptr : other->Find(name);
      if (same == nullptr) same = rest;
      properties.as_object().emplace_back(name, same == nullptr ? schema : AllOf(schema, *same));
    }
  };
  add(ours, theirs, b);
  add(theirs, ours, a);
  if (ours != nullptr || theirs != nullptr) merged.Set("properties", std::move(properties));
  return Status();
}

Result<Json> SchemaAlgebra::Merge(const Json& a, const Json& b, const std::string& where) {
  RETURN_IF_ERROR(Spend(where));
  if (a.is_bool()) return a.as_bool() ? b : a;
  if (b.is_bool()) return b.as_bool() ? a : b;
  if (a.as_object().empty()) return b;
  if (b.as_object().empty()) return a;
  Json merged(Json::Object{});
  if (a.Find("type") != nullptr || b.Find("type") != nullptr) {
    const auto types_of = [&](const Json& schema) -> Result<uint32_t> {
      return schema.Find("type") == nullptr ? Result<uint32_t>(kAnyType) : TypesOf(schema, where);
    };
    ASSIGN_OR_RETURN(const uint32_t types_a, types_of(a));
    ASSIGN_OR_RETURN(const uint32_t types_b, types_of(b));
    const uint32_t both = Overlap(types_a, types_b);
    if (both == 0) return Json(false);
    merged.Set("type", TypeList(both));
  }
  RETURN_IF_ERROR(MergeProperties(a, b, merged));
  Json storage_a, storage_b;
  const Json* values_a = Values(a, storage_a);
  const Json* values_b = Values(b, storage_b);
  if (values_a != nullptr || values_b != nullptr) {
    Json::Array values;
    for (const Json& value : (values_a != nullptr ? values_a : values_b)->as_array()) {
      if (values_b == nullptr || values_a == nullptr ||
          std::find(values_b->as_array().begin(), values_b->as_array().end(), value) != values_b->as_array().end()) {
        values.push_back(value);
      }
    }
    if (values.empty()) return Json(false);
    merged.Set("enum", Json(std::move(values)));
  }
  const bool prefix = a.Find("prefixItems") != nullptr || b.Find("prefixItems") != nullptr;
  for (const Keyword& keyword : kKeywords) {
    const std::string_view name = keyword.name;
    const Json* x = a.Find(name);
    const Json* y = b.Find(name);
    if ((x == nullptr && y == nullptr) || name == "type" || name == "nullable" || name == "properties" ||
        name == "enum" || name == "const") {
      continue;
    }
    // Of one alone it counts as it is - unless it is about what the other's prefixItems leave over.
    const bool items = name == "items" || name == "prefixItems";
    if (x == nullptr || y == nullptr) {
      const Json& other = x == nullptr ? a : b;
      if (!(items && prefix && (other.Find("items") != nullptr || other.Find("prefixItems") != nullptr))) {
        merged.Set(name, x == nullptr ? *y : *x);
        continue;
      }
    } else if (*x == *y) {
      merged.Set(name, *x);
      continue;
    } else if (name == "required") {
      Json::Array names = x->as_array();
      for (const Json& item : y->as_array()) {
        if (std::find(names.begin(), names.end(), item) == names.end()) names.push_back(item);
      }
      merged.Set(name, Json(std::move(names)));
      continue;
    } else if (name == "additionalProperties" || name == "propertyNames" || (name == "items" && !prefix)) {
      merged.Set(name, AllOf(*x, *y));
      continue;
    } else if (name == "uniqueItems") {
      merged.Set(name, Json(true));
      continue;
    } else if (x->is_number() && y->is_number() && name != "multipleOf") {
      const bool lower = name.starts_with("max") || name == "exclusiveMaximum";
      merged.Set(name, (x->as_double() < y->as_double()) == lower ? *x : *y);
      continue;
    }
    return UnsupportedError(
        fmt::format("schema at {}: two values of '{}' that must both hold cannot be honoured", where, name));
  }
  return merged;
}

Result<bool> SchemaAlgebra::Disjoint(const Json& a, const Json& b, const std::string& where, int depth) {
  RETURN_IF_ERROR(Spend(where));
  if (depth > kMostDepth / 8) return false;
  ASSIGN_OR_RETURN(const uint32_t types_a, TypesOf(a, where));
  ASSIGN_OR_RETURN(const uint32_t types_b, TypesOf(b, where));
  // A schema without "type" allows other types too; only its grammar is narrower.
  const uint32_t common =
      Overlap(a.Find("type") == nullptr && a.Find("enum") == nullptr && a.Find("const") == nullptr ? uint32_t{kAnyType}
                                                                                                   : types_a,
              b.Find("type") == nullptr && b.Find("enum") == nullptr && b.Find("const") == nullptr ? uint32_t{kAnyType}
                                                                                                   : types_b);
  if (types_a == 0 || types_b == 0 || common == 0) return true;
  Json storage_a, storage_b;
  const Json* values_a = Values(a, storage_a);
  const Json* values_b = Values(b, storage_b);
  if (values_a != nullptr && values_b != nullptr) {
    return std::none_of(values_a->as_array().begin(), values_a->as_array().end(), [&](const Json& value) {
      return std::find(values_b->as_array().begin(), values_b->as_array().end(), value) != values_b->as_array().end();
    });
  }
  // What is written is of types_a or types_b; a value of one must not be allowed by the other.
  if (Overlap(types_a, types_b) == kObjectType && common == kObjectType) {
    const bool a_lacks = RequiresUnknown(b, a) && WritesOnlyNamed(a);
    const bool b_lacks = RequiresUnknown(a, b) && WritesOnlyNamed(b);
    if ((a_lacks && (b_lacks || IsClosed(a))) || (b_lacks && IsClosed(b))) return true;
    const Json* properties_a = a.Find("properties");
    const Json* properties_b = b.Find("properties");
    if (properties_a == nullptr || properties_b == nullptr) return false;
    for (const auto& [name, schema] : properties_a->as_object()) {
      const Json* other = properties_b->Find(name);
      if (other == nullptr || !IsRequired(a, name) || !IsRequired(b, name)) continue;
      ASSIGN_OR_RETURN(const Json flat, Flatten(schema, PointerTo(where, name)));
      ASSIGN_OR_RETURN(const Json flat_other, Flatten(*other, PointerTo(where, name)));
      ASSIGN_OR_RETURN(const bool disjoint, Disjoint(flat, flat_other, where, depth + 1));
      if (disjoint) return true;
    }
  }
  if ((common & ~uint32_t{kNumberType | kIntegerType}) == 0) {
    const auto above = [](const Json& low, const Json& high) {
      const Json* min = low.Find("minimum");
      const Json* max = high.Find("maximum");
      const Json* exclusive = high.Find("exclusiveMaximum");
      if (min == nullptr) return false;
      if (max != nullptr && max->as_double() < min->as_double()) return true;
      return exclusive != nullptr && exclusive->is_number() && exclusive->as_double() <= min->as_double();
    };
    return above(a, b) || above(b, a);
  }
  return false;
}

}  // namespace nunspark::text
