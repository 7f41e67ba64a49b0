// Typed members of a JSON object, with errors that name the member, what was expected and what was found.
#ifndef NUNSPARK_FORMATS_JSON_FIELDS_H_
#define NUNSPARK_FORMATS_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/json.h"
#include "nunspark/status.h"

namespace nunspark {

// A view of one object of a document. `what` is the document (a path), `path` the object's place in it ("pieces[3]", ""
// for the root). Borrows the object and what; cheap to make.
class JsonFields {
 public:
  // Errors: kDataLoss when `object` is none.
  static Result<JsonFields> Of(const Json& object, std::string_view what, std::string path);

  // Errors of all: kDataLoss when the member is missing, of another type, or outside [low, high].
  Result<int64_t> Int(std::string_view key, int64_t low, int64_t high) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string> String(std::string_view key) const;
  Result<const Json*> Array(std::string_view key) const;
  Result<const Json*> Object(std::string_view key) const;

  // kDataLoss for a member that is not in the list.
  Status RefuseOthers(std::initializer_list<std::string_view> keys) const;

  // "<what>: <path>.<key>: expected <expected>, found <found>".
  Status Wrong(std::string_view key, std::string_view expected, std::string_view found) const;

 private:
  JsonFields(const Json& object, std::string_view what, std::string path)
      : object_(&object), what_(what), path_(std::move(path)) {}

  Result<const Json*> Get(std::string_view key, std::string_view expected) const;

  const Json* object_;
  std::string_view what_;
  std::string path_;
};

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_JSON_FIELDS_H_
