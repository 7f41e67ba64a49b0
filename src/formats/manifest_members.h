// Typed members of the many small objects of a manifest, while it is walked with simdjson On-Demand: what JsonFields is
// for a tree, with the same messages. Used by manifest_reader.cc alone.
#ifndef NUNSPARK_FORMATS_MANIFEST_MEMBERS_H_
#define NUNSPARK_FORMATS_MANIFEST_MEMBERS_H_

#include <simdjson.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "nunspark/status.h"

namespace nunspark {

// Where an object is; becomes text only when something is wrong with it.
struct ManifestPlace {
  size_t piece = 0;
  std::optional<size_t> tensor;

  std::string Text() const;  // "pieces[3]", "pieces[3].tensors[0]"
};

// "<what>: not valid JSON: <reason>", kDataLoss; kResourceExhausted when simdjson got no memory.
Status ManifestJsonError(std::string_view what, simdjson::error_code error);

// "integer", "array" and so on, as Json::TypeName; numbers that are no int64 are "number". Errors: kDataLoss when it is
// no value at all.
Result<std::string_view> ManifestTypeName(std::string_view what, simdjson::ondemand::value value);

// Reads one object after another, all with the same members, and nothing is allocated while they are right.
// `what` (the document, a path) and `keys` are borrowed. A member is named by its index in `keys`.
class ManifestMembers {
 public:
  static constexpr size_t kMaxKeys = 6;

  // REQUIRES: at most kMaxKeys keys.
  ManifestMembers(std::string_view what, std::span<const std::string_view> keys);

  // Walks over all members of an object, in any order; those of the object before are forgotten.
  // Errors: kDataLoss for no object, a member that is not among the keys, one that comes twice, malformed JSON.
  Status Read(simdjson::ondemand::value value, ManifestPlace place);

  // Errors of all: kDataLoss when the member is missing, of another type, or outside [low, high].
  Result<int64_t> Int(size_t key, int64_t low, int64_t high) const;
  // Stays valid as long as the document's text and parser.
  Result<std::string_view> String(size_t key) const;
  // From its beginning. To be walked once; not while another array or object of the document is being walked, except
  // those around it.
  Result<simdjson::ondemand::array> Array(size_t key);

  // "<what>: <place>.<key>: expected <expected>, found <found>".
  Status Wrong(size_t key, std::string_view expected, std::string_view found) const;

 private:
  struct Member {
    std::string_view type;  // as Json::TypeName; empty when there is no such member
    int64_t integer = 0;
    std::string_view text;
    simdjson::ondemand::array items;
  };

  Result<size_t> FindKey(simdjson::ondemand::field& field) const;
  Status ReadMember(simdjson::ondemand::value value, Member& member) const;
  // Of a missing member and of one of another type than `type`.
  Status WrongType(size_t key, std::string_view expected) const;

  std::string_view what_;
  std::span<const std::string_view> keys_;
  ManifestPlace place_;
  std::array<Member, kMaxKeys> members_;
};

}  // namespace nunspark

#endif  // NUNSPARK_FORMATS_MANIFEST_MEMBERS_H_
