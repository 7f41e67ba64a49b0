#include "text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "text/grammar/json_grammar.h"
#include "text/grammar/json_pattern.h"
#include "text/grammar/schema_algebra.h"

namespace nunspark::text {
namespace {

constexpr size_t kMostSchemaBytes = 1 << 20;
constexpr int kMostDepth = 100;

// Formats as patterns. Years from 0001; no leap seconds; host names and addresses of ASCII.
#define NUNSPARK_DATE                                                                                   \
  "(?:(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|" \
  "(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|"                                     \
  "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29)"
#define NUNSPARK_TIME "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+\\-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define NUNSPARK_LABEL "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,30}[A-Za-z0-9])?"
#define NUNSPARK_HOST NUNSPARK_LABEL "(?:\\." NUNSPARK_LABEL "){0,5}"
#define NUNSPARK_BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
struct Format {
  std::string_view name;
  std::string_view pattern;
};
constexpr Format kFormats[] = {
    {"date", "^" NUNSPARK_DATE "$"},
    {"time", "^" NUNSPARK_TIME "$"},
    {"date-time", "^" NUNSPARK_DATE "T" NUNSPARK_TIME "$"},
    {"duration",
     "^P(?:\\d{1,9}W|\\d{1,9}D(?:T\\d{1,9}[HMS])?|T\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|"
     "T\\d{1,9}M(?:\\d{1,9}S)?|T\\d{1,9}S|\\d{1,9}Y(?:\\d{1,9}M(?:\\d{1,9}D)?)?|\\d{1,9}M(?:\\d{1,9}D)?)$"},
    {"uuid", "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"},
    {"email",
     "^[A-Za-z0-9_+\\-]{1,32}(?:\\.[A-Za-z0-9_+\\-]{1,10}){0,2}@" NUNSPARK_LABEL "(?:\\." NUNSPARK_LABEL "){1,5}$"},
    {"hostname", "^" NUNSPARK_HOST "$"},
    {"ipv4", "^" NUNSPARK_BYTE "(?:\\." NUNSPARK_BYTE "){3}$"},
    {"ipv6", "^[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}$"},
    {"uri", "^[a-z][a-z0-9+.\\-]{0,15}://" NUNSPARK_HOST "(?::[1-9]\\d{0,3})?(?:/[A-Za-z0-9._~\\-]{0,64}){0,16}"
            "(?:\\?[A-Za-z0-9._~=&+\\-]{0,256})?(?:#[A-Za-z0-9._~\\-]{0,64})?$"},
};

// The size that a count keyword gives; counts no output reaches are none.
uint32_t Limit(const Json* count, uint32_t otherwise) {
  if (count == nullptr) return otherwise;
  const double value = count->as_double();
  return value >= 4e9 ? kUnlimited : static_cast<uint32_t>(value);
}

class SchemaCompiler {
 public:
  SchemaCompiler(const Json& root, Grammar& grammar) : algebra_(root), g_(grammar), json_(grammar) {}

  Result<ExprId> Run() {
    const ExprId root = Reference("#");
    // References are compiled one after the other, so that a chain of them needs no deep stack.
    while (!open_.empty()) {
      const auto [reference, rule] = std::move(open_.back());
      open_.pop_back();
      ASSIGN_OR_RETURN(const Json* target, algebra_.Resolve(reference, reference));
      ASSIGN_OR_RETURN(const ExprId body, Compile(*target, reference, 0));
      g_.Define(rule, body);
    }
    return root;
  }

 private:
  Status Refuse(const std::string& where, std::string_view what) const {
    return UnsupportedError(fmt::format("schema at {}: {} cannot be honoured", where, what));
  }

  ExprId Reference(const std::string& reference) {
    const auto [at, is_new] = rules_.try_emplace(reference, 0);
    if (is_new) {
      at->second = g_.NewRule("schema at " + reference);
      g_.Define(at->second, g_.Never());
      open_.emplace_back(reference, at->second);
    }
    return g_.Rule(at->second);
  }

  Result<ExprId> Compile(const Json& schema, const std::string& where, int depth) {
    RETURN_IF_ERROR(algebra_.Spend(where));
    RETURN_IF_ERROR(g_.CheckSize());
    if (depth > kMostDepth) {
      return ResourceExhaustedError(fmt::format("schema at {}: nested more than {} deep", where, kMostDepth));
    }
    RETURN_IF_ERROR(algebra_.CheckKeywords(schema, where));
    if (schema.is_bool()) return schema.as_bool() ? json_.value() : g_.Never();
    const Json own = AssertionsOf(schema);
    if (const Json* reference = own.Find("$ref"); reference != nullptr && own.as_object().size() == 1) {
      RETURN_IF_ERROR(algebra_.Resolve(reference->as_string(), where).status());
      return Reference(reference->as_string());
    }
    if (own.Find("$ref") != nullptr || own.Find("allOf") != nullptr) {
      ASSIGN_OR_RETURN(const Json flat, algebra_.Flatten(own, where));
      return CompileFlat(flat, where, depth);
    }
    return CompileFlat(own, where, depth);
  }

  Result<ExprId> CompileFlat(const Json& schema, const std::string& where, int depth) {
    if (schema.is_bool()) return schema.as_bool() ? json_.value() : g_.Never();
    for (const std::string_view name : {"anyOf", "oneOf"}) {
      if (schema.Find(name) != nullptr) return CompileBranches(schema, name, where, depth);
    }
    ASSIGN_OR_RETURN(const uint32_t types, algebra_.TypesOf(schema, where));
    if (schema.Find("enum") != nullptr || schema.Find("const") != nullptr) return CompileValues(schema, types, where);
    if (types == kAnyType) return json_.value();
    std::vector<ExprId> choices;
    if ((types & kObjectType) != 0) {
      ASSIGN_OR_RETURN(const ExprId object, CompileObject(schema, where, depth));
      choices.push_back(object);
    }
    if ((types & kArrayType) != 0) {
      ASSIGN_OR_RETURN(const ExprId array, CompileArray(schema, where, depth));
      choices.push_back(array);
    }
    if ((types & kStringType) != 0) {
      ASSIGN_OR_RETURN(const ExprId string, CompileString(schema, where));
      choices.push_back(string);
    }
    if ((types & (kNumberType | kIntegerType)) != 0) {
      ASSIGN_OR_RETURN(const ExprId number, CompileNumber(schema, (types & kNumberType) == 0, where));
      choices.push_back(number);
    }
    if ((types & kBooleanType) != 0) choices.push_back(json_.boolean());
    if ((types & kNullType) != 0) choices.push_back(json_.null());
    return g_.Choice(choices);
  }

  Result<ExprId> CompileBranches(const Json& schema, std::string_view keyword, const std::string& where, int depth) {
    if (schema.Find("anyOf") != nullptr && schema.Find("oneOf") != nullptr) {
      return Refuse(where, "'anyOf' beside 'oneOf'");
    }
    Json rest(Json::Object{});
    for (const auto& [key, value] : schema.as_object()) {
      if (key != keyword) rest.as_object().emplace_back(key, value);
    }
    std::vector<Json> flat;
    std::vector<ExprId> choices;
    const Json::Array& branches = schema.Find(keyword)->as_array();
    const bool alone = rest.as_object().empty();
    for (size_t i = 0; i < branches.size(); ++i) {
      const std::string place = fmt::format("{}/{}/{}", where, keyword, i);
      if (!alone || keyword == "oneOf") {
        ASSIGN_OR_RETURN(const Json branch, algebra_.Flatten(branches[i], place));
        ASSIGN_OR_RETURN(Json both, algebra_.Merge(rest, branch, place));
        flat.push_back(std::move(both));
      }
      ASSIGN_OR_RETURN(const ExprId choice,
                       alone ? Compile(branches[i], place, depth + 1) : CompileFlat(flat.back(), place, depth + 1));
      choices.push_back(choice);
    }
    for (size_t i = 0; keyword == "oneOf" && i < flat.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        ASSIGN_OR_RETURN(const bool disjoint, algebra_.Disjoint(flat[k], flat[i], where, 0));
        if (disjoint) continue;
        return Refuse(where, fmt::format("'oneOf' whose branches {} and {} may both hold", k, i));
      }
    }
    return g_.Choice(choices);
  }

  // enum and const. Values that the other keywords exclude are left out.
  Result<ExprId> CompileValues(const Json& schema, uint32_t types, const std::string& where) {
    const Json* list = schema.Find("enum");
    const Json* constant = schema.Find("const");
    const Json::Array& values = list != nullptr ? list->as_array() : Json::Array{*constant};
    std::vector<ExprId> choices;
    for (const Json& value : values) {
      const SchemaType type = TypeOfValue(value);
      const bool fits = (types & type) != 0 || (type == kIntegerType && (types & kNumberType) != 0);
      if (!fits || (constant != nullptr && !(value == *constant))) continue;
      ASSIGN_OR_RETURN(const bool allowed, ValueFits(value, schema, where));
      if (allowed) choices.push_back(json_.Constant(value));
    }
    return g_.Choice(choices);
  }

  Result<bool> ValueFits(const Json& value, const Json& schema, const std::string& where) const {
    for (const auto& [key, limit] : schema.as_object()) {
      if (key == "type" || key == "nullable" || key == "enum" || key == "const") continue;
      if (value.is_number() && limit.is_number() && key != "multipleOf") {
        const double v = value.as_double();
        const double l = limit.as_double();
        if ((key == "minimum" && v < l) || (key == "maximum" && v > l) || (key == "exclusiveMinimum" && v <= l) ||
            (key == "exclusiveMaximum" && v >= l)) {
          return false;
        }
        continue;
      }
      if (value.is_string() && (key == "minLength" || key == "maxLength")) {
        double length = 0;
        for (size_t i = 0; i < value.as_string().size(); i += DecodeUtf8(value.as_string(), i).bytes) ++length;
        if (key == "minLength" ? length < limit.as_double() : length > limit.as_double()) return false;
        continue;
      }
      const bool about_numbers = key.find("imum") != std::string::npos || key == "multipleOf";
      const bool about_strings = key.find("Length") != std::string::npos || key == "pattern" || key == "format";
      const bool applies = about_numbers   ? value.is_number()
                           : about_strings ? value.is_string()
                                           : value.is_array() || value.is_object();
      if (applies) return Refuse(where, fmt::format("'{}' beside 'enum' or 'const'", key));
    }
    return true;
  }

  Result<ExprId> CompileString(const Json& schema, const std::string& where) {
    const uint32_t min = Limit(schema.Find("minLength"), 0);
    const uint32_t max = Limit(schema.Find("maxLength"), kUnlimited);
    if (min > kMaxRepetition) return Refuse(where, fmt::format("'minLength' above {}", kMaxRepetition));
    if (min > max) return g_.Never();
    const Json* pattern = schema.Find("pattern");
    const Json* format = schema.Find("format");
    if (pattern == nullptr && format == nullptr) {
      return min == 0 && max == kUnlimited ? json_.string() : json_.StringOf(min, max);
    }
    if (pattern != nullptr && format != nullptr) return Refuse(where, "'pattern' beside 'format'");
    const std::string_view keyword = pattern != nullptr ? "pattern" : "format";
    std::string_view source;
    if (pattern != nullptr) {
      source = pattern->as_string();
    } else {
      const auto* known = std::find_if(std::begin(kFormats), std::end(kFormats),
                                       [&](const Format& f) { return f.name == format->as_string(); });
      if (known == std::end(kFormats)) return Refuse(where, fmt::format("'format' {}", JsonQuote(format->as_string())));
      source = known->pattern;
    }
    const Result<JsonPattern> made = AddPattern(source, json_, g_);
    if (!made.ok()) return made.status().WithContext(fmt::format("schema at {}: '{}'", where, keyword));
    if (made->least < min || made->most > max) {
      const std::string_view limit = made->least < min ? "minLength" : "maxLength";
      return Refuse(where, fmt::format("'{}' beside a '{}' that does not keep to it by itself", limit, keyword));
    }
    return g_.Shared("schema at " + where, g_.Sequence({g_.Literal("\""), made->expr, g_.Literal("\"")}));
  }

  Result<ExprId> CompileNumber(const Json& schema, bool integer, const std::string& where) {
    uint32_t digits = kMostFractionDigits;
    const Json* multiple = schema.Find("multipleOf");
    if (multiple != nullptr) {
      const std::optional<Decimal> step = Decimal::From(*multiple);
      const bool one = step.has_value() && !step->negative && step->whole == "1" && step->fraction.empty();
      const bool power = step.has_value() && !step->negative && step->whole == "0" && step->fraction.ends_with('1') &&
                         step->fraction.find_first_not_of('0') == step->fraction.size() - 1;
      if (!one && !(power && !integer)) {
        return Refuse(where, fmt::format("'multipleOf' {} (only 1, 0.1, 0.01 and so on)", WriteJson(*multiple)));
      }
      if (one) integer = true;
      if (power) digits = static_cast<uint32_t>(step->fraction.size());
    }
    std::optional<JsonGrammar::Bound> low, high;
    RETURN_IF_ERROR(ReadBound(schema, "minimum", "exclusiveMinimum", 1, where, low));
    RETURN_IF_ERROR(ReadBound(schema, "maximum", "exclusiveMaximum", -1, where, high));
    if (!low.has_value() && !high.has_value() && multiple == nullptr) return integer ? json_.integer() : json_.number();
    if (integer) return IntegerInside(low, high, where);
    for (const auto& bound : {low, high}) {
      if (bound.has_value() && bound->value.fraction.size() > digits) {
        return Refuse(where, "a bound with more digits than 'multipleOf' has");
      }
    }
    return json_.NumberBetween(low, high, digits);
  }

  // The stricter of a bound and its exclusive form, which was a boolean up to draft 4. `direction`: 1 when larger is
  // stricter.
  Status ReadBound(const Json& schema, std::string_view inclusive, std::string_view exclusive, int direction,
                   const std::string& where, std::optional<JsonGrammar::Bound>& bound) const {
    const Json* value = schema.Find(inclusive);
    const Json* strict = schema.Find(exclusive);
    const auto read = [&](const Json& number, std::string_view keyword, bool is_exclusive) -> Status {
      std::optional<Decimal> decimal = Decimal::From(number);
      if (!decimal.has_value()) {
        const double v = number.as_double();
        // Beyond all that is written: no bound at all, or one that nothing keeps.
        if (std::abs(v) >= 1e18 && (v > 0) == (direction < 0)) return Status();
        return Refuse(where, fmt::format("'{}' {}", keyword, WriteJson(number)));
      }
      const int order = bound.has_value() ? direction * Compare(*decimal, bound->value) : 1;
      if (order > 0 || (order == 0 && is_exclusive)) bound = JsonGrammar::Bound{std::move(*decimal), is_exclusive};
      return Status();
    };
    const bool both = strict != nullptr && strict->is_bool();
    if (value != nullptr) RETURN_IF_ERROR(read(*value, inclusive, both && strict->as_bool()));
    if (strict != nullptr && !both) RETURN_IF_ERROR(read(*strict, exclusive, true));
    return Status();
  }

  Result<ExprId> IntegerInside(const std::optional<JsonGrammar::Bound>& low,
                               const std::optional<JsonGrammar::Bound>& high, const std::string& where) {
    // As int64: Decimal has at most 18 digits.
    const auto whole = [](const JsonGrammar::Bound& bound, int direction) {
      const int64_t truncated = (bound.value.negative ? -1 : 1) * std::stoll(bound.value.whole);
      if (bound.value.fraction.empty()) return truncated + (bound.exclusive ? direction : 0);
      if (direction > 0) return bound.value.negative ? truncated : truncated + 1;
      return bound.value.negative ? truncated - 1 : truncated;
    };
    const auto decimal = [](const std::optional<JsonGrammar::Bound>& bound, int64_t value) -> std::optional<Decimal> {
      if (!bound.has_value()) return std::nullopt;
      return Decimal::From(Json(value));
    };
    const int64_t from = low.has_value() ? whole(*low, 1) : 0;
    const int64_t to = high.has_value() ? whole(*high, -1) : 0;
    const std::optional<Decimal> first = decimal(low, from);
    const std::optional<Decimal> last = decimal(high, to);
    if (first.has_value() != low.has_value() || last.has_value() != high.has_value()) {
      return Refuse(where, "a bound of more than 18 digits");
    }
    return json_.IntegerBetween(first, last);
  }

  Result<ExprId> CompileArray(const Json& schema, const std::string& where, int depth) {
    const uint32_t min = Limit(schema.Find("minItems"), 0);
    const uint32_t max = Limit(schema.Find("maxItems"), kUnlimited);
    if (min > kMaxRepetition) return Refuse(where, fmt::format("'minItems' above {}", kMaxRepetition));
    const Json* unique = schema.Find("uniqueItems");
    if (unique != nullptr && unique->as_bool() && max > 1) return Refuse(where, "'uniqueItems'");
    std::vector<ExprId> prefix;
    if (const Json* items = schema.Find("prefixItems"); items != nullptr) {
      for (size_t i = 0; i < items->as_array().size(); ++i) {
        ASSIGN_OR_RETURN(const ExprId item,
                         Compile(items->as_array()[i], fmt::format("{}/prefixItems/{}", where, i), depth + 1));
        prefix.push_back(item);
      }
    }
    std::optional<ExprId> rest;
    if (const Json* items = schema.Find("items"); items != nullptr) {
      ASSIGN_OR_RETURN(const ExprId item, Compile(*items, where + "/items", depth + 1));
      rest = g_.Shared("item", item);
    } else if (prefix.empty()) {
      rest = json_.value();
    }
    if (min > max) return g_.Never();
    if (max == 0) return json_.ArrayOf(std::nullopt, true);
    // From the last item to the first: what may follow item i.
    const auto fixed = static_cast<uint32_t>(std::min<size_t>(prefix.size(), max));
    const uint32_t more = max == kUnlimited ? kUnlimited : max - fixed;
    const uint32_t must = min > fixed ? min - fixed : 0;
    ExprId after = g_.Empty();
    if (rest.has_value() && fixed > 0) {
      after = g_.Repeat(g_.Sequence({json_.comma(), *rest}), must, more);
    } else if (rest.has_value()) {
      after = g_.Sequence({*rest, g_.Repeat(g_.Sequence({json_.comma(), *rest}), must > 0 ? must - 1 : 0,
                                            more == kUnlimited ? more : more - 1)});
    } else if (must > 0) {
      after = g_.Never();
    }
    for (uint32_t i = fixed; i-- > 0;) {
      after = g_.Sequence({prefix[i], after});
      if (i > 0) after = g_.Sequence({json_.comma(), after});
      if (i > 0 && i >= min) after = g_.Optional(after);
      RETURN_IF_ERROR(g_.CheckSize());
    }
    return json_.ArrayOf(after, min == 0);
  }

  struct Property {
    std::string name;
    ExprId value;
    bool required;
  };

  Result<ExprId> CompileObject(const Json& schema, const std::string& where, int depth) {
    ASSIGN_OR_RETURN(const std::optional<ExprId> others, OtherProperties(schema, where, depth));
    std::vector<Property> properties;
    std::vector<std::string> required;
    if (const Json* names = schema.Find("required"); names != nullptr) {
      for (const Json& name : names->as_array()) required.push_back(name.as_string());
    }
    const auto is_required = [&](const std::string& name) {
      return std::find(required.begin(), required.end(), name) != required.end();
    };
    if (const Json* named = schema.Find("properties"); named != nullptr) {
      for (const auto& [name, value] : named->as_object()) {
        ASSIGN_OR_RETURN(const ExprId expr, Compile(value, PointerTo(where + "/properties", name), depth + 1));
        properties.push_back({name, expr, is_required(name)});
      }
    }
    for (const std::string& name : required) {
      const bool known =
          std::any_of(properties.begin(), properties.end(), [&](const Property& p) { return p.name == name; });
      if (known) continue;
      if (schema.Find("patternProperties") != nullptr || schema.Find("propertyNames") != nullptr) {
        return Refuse(where, fmt::format("'required' {} without a property of that name", JsonQuote(name)));
      }
      // Not named, so it is what other properties may be; where those are not mentioned, anything.
      properties.push_back({name, others.value_or(Forbids(schema) ? g_.Never() : json_.value()), true});
    }
    return ObjectOf(schema, properties, others, where);
  }

  // Whether properties that are not named are expressly forbidden.
  static bool Forbids(const Json& schema) {
    for (const std::string_view name : {"additionalProperties", "unevaluatedProperties"}) {
      const Json* rest = schema.Find(name);
      if (rest != nullptr && rest->is_bool() && !rest->as_bool()) return true;
    }
    return false;
  }

  // The values of properties without a name of their own; nothing: there are none. Where the schema says nothing about
  // them they are left out if it names others.
  Result<std::optional<ExprId>> OtherProperties(const Json& schema, const std::string& where, int depth) {
    const Json* unevaluated = schema.Find("unevaluatedProperties");
    if (unevaluated != nullptr && !unevaluated->is_bool())
      return Refuse(where, "'unevaluatedProperties' with a schema");
    const Json* patterns = schema.Find("patternProperties");
    if (patterns != nullptr && !patterns->as_object().empty()) {
      const bool alone = schema.Find("properties") == nullptr && schema.Find("propertyNames") == nullptr &&
                         patterns->as_object().size() == 1 && Forbids(schema);
      if (!alone) {
        return Refuse(where,
                      "'patternProperties' (but for one pattern with 'additionalProperties': false and nothing else)");
      }
      ASSIGN_OR_RETURN(const ExprId value,
                       Compile(patterns->as_object()[0].second,
                               PointerTo(where + "/patternProperties", patterns->as_object()[0].first), depth + 1));
      return std::optional(value);
    }
    if (Forbids(schema)) return std::optional<ExprId>();
    const Json* rest = schema.Find("additionalProperties");
    if (rest == nullptr) {
      return schema.Find("properties") == nullptr ? std::optional(json_.value()) : std::optional<ExprId>();
    }
    ASSIGN_OR_RETURN(const ExprId value, Compile(*rest, where + "/additionalProperties", depth + 1));
    return std::optional(g_.Shared("property", value));
  }

  // A key of a property without a name of its own, quotes included.
  Result<ExprId> OtherKey(const Json& schema, const std::vector<Property>& properties, const std::string& where) {
    Json names(Json::Object{});
    names.Set("type", "string");
    const Json* patterns = schema.Find("patternProperties");
    if (patterns != nullptr && !patterns->as_object().empty()) {
      names.Set("pattern", patterns->as_object()[0].first);
      return Compile(names, where + "/patternProperties", 0);
    }
    if (const Json* rule = schema.Find("propertyNames"); rule != nullptr) {
      if (!properties.empty()) return Refuse(where, "'propertyNames' beside 'properties'");
      ASSIGN_OR_RETURN(const Json flat, algebra_.Flatten(*rule, where + "/propertyNames"));
      ASSIGN_OR_RETURN(const Json both, algebra_.Merge(names, flat, where + "/propertyNames"));
      return Compile(both, where + "/propertyNames", 0);
    }
    std::vector<std::string> taken;
    for (const Property& property : properties) taken.push_back(property.name);
    return taken.empty() ? json_.string() : json_.KeyExcept(taken);
  }

  // Members in the order of the properties, then the others. Of each property two rules: what may come once a comma or
  // the brace has been read (it, or one behind it), and what may come after it.
  Result<ExprId> ObjectOf(const Json& schema, const std::vector<Property>& properties,
                          const std::optional<ExprId>& others, const std::string& where) {
    if (schema.Find("propertyNames") != nullptr && !properties.empty()) {
      return Refuse(where, "'propertyNames' beside 'properties'");
    }
    const auto must = static_cast<uint32_t>(
        std::count_if(properties.begin(), properties.end(), [](const Property& p) { return p.required; }));
    const uint32_t min = Limit(schema.Find("minProperties"), 0);
    const uint32_t max = Limit(schema.Find("maxProperties"), kUnlimited);
    // A model may repeat a key, and then there are fewer properties than members.
    if (min > must && (min > 1 || !properties.empty())) return Refuse(where, fmt::format("'minProperties' {}", min));
    const bool only_others = properties.empty();
    if (!only_others && max != kUnlimited && (others.has_value() || max < properties.size())) {
      return Refuse(where, fmt::format("'maxProperties' {} beside 'properties'", max));
    }
    if (max == 0 || (only_others && !others.has_value())) {
      return min > 0 ? g_.Never() : json_.ObjectOf(std::nullopt, true);
    }
    ExprId keys = g_.Never();  // with nothing but other properties left
    ExprId after = g_.Empty();
    if (others.has_value()) {
      ASSIGN_OR_RETURN(const ExprId key, OtherKey(schema, properties, where));
      const ExprId member = g_.Shared("member", g_.Sequence({key, json_.colon(), *others}));
      const ExprId more = g_.Repeat(g_.Sequence({json_.comma(), member}), 0, max == kUnlimited ? max : max - 1);
      keys = g_.Shared("members", g_.Sequence({member, more}));
      after = g_.Optional(g_.Sequence({json_.comma(), keys}));
    }
    bool may_stop = true;
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& property = properties[i];
      const ExprId member = g_.Sequence({g_.Literal(JsonQuote(property.name)), json_.colon(), property.value});
      const ExprId with = g_.Sequence({member, after});
      keys = g_.Shared("members", property.required ? with : g_.Choice({with, keys}));
      may_stop = may_stop && !property.required;
      const ExprId comma_keys = g_.Sequence({json_.comma(), keys});
      after = g_.Shared("more members", may_stop ? g_.Optional(comma_keys) : comma_keys);
      RETURN_IF_ERROR(g_.CheckSize());
    }
    return json_.ObjectOf(keys, may_stop && min == 0);
  }

  SchemaAlgebra algebra_;
  Grammar& g_;
  JsonGrammar json_;
  std::unordered_map<std::string, RuleId> rules_;
  std::vector<std::pair<std::string, RuleId>> open_;
};

}  // namespace

Result<ExprId> AddJsonSchema(std::string_view schema, Grammar& grammar) {
  if (schema.size() > kMostSchemaBytes) {
    return ResourceExhaustedError(
        fmt::format("expected a schema of at most {} bytes, found {}", kMostSchemaBytes, schema.size()));
  }
  // In a list, because a schema may be a mere true or false, which is no document to the parser.
  const Result<Json> list = ParseJson(fmt::format("[{}\n]", schema), "the schema");
  if (!list.ok()) return InvalidArgumentError(list.status().message());
  if (list->as_array().size() != 1) return InvalidArgumentError("the schema: expected one JSON value");
  return SchemaCompiler(list->as_array()[0], grammar).Run();
}

}  // namespace nunspark::text
