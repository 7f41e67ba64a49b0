// What a hub says about one revision of a repository: its commit and its files. Untrusted: names become paths here.
#ifndef NUNSPARK_HUB_LISTING_H_
#define NUNSPARK_HUB_LISTING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hub/digest.h"
#include "nunspark/status.h"

namespace nunspark {

inline constexpr int64_t kMaxListingBytes = int64_t{16} << 20;
inline constexpr size_t kMaxListedFiles = 20000;

struct RepoFile {
  std::string name;  // with '/'; safe to append to a folder
  int64_t bytes = 0;
  DigestKind digest_kind = DigestKind::kSha256;
  std::string digest;  // hex; also the name of its blob in the cache. "": the hub does not say
};

struct RepoListing {
  std::string commit;           // 40 hex digits
  std::vector<RepoFile> files;  // by name, each once
};

// Whether a file of that name may be created below a folder: a relative path of at most 1024 bytes of UTF-8, without
// "." and ".." and empty parts, control characters and backslashes, parts of at most 230 bytes (file systems take
// 255; the rest is for temporary names beside them). Errors: kDataLoss, quoting the name.
Status CheckFileName(std::string_view name);

// The answer of GET /api/models/<id>/revision/<revision>?blobs=true. `what` names it in errors.
// Errors: kDataLoss for what is malformed, for names that CheckFileName refuses and for one that is listed twice;
// kResourceExhausted beyond kMaxListedFiles.
Result<RepoListing> ParseListing(std::string_view json, std::string_view what);

// Files that would be one on a file system without upper and lower case, or that have a name of a device there.
// Errors: kDataLoss, naming them.
Status CheckTogether(const std::vector<RepoFile>& files);

}  // namespace nunspark

#endif  // NUNSPARK_HUB_LISTING_H_
