// Re-reads a pack and compares every byte with its checksums (docs/FORMAT.md, "Checksums").
#ifndef NUNSPARK_PACK_VERIFY_H_
#define NUNSPARK_PACK_VERIFY_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nunspark/status.h"

namespace nunspark {

struct VerifyProblem {
  std::string file;  // name inside the pack
  std::string what;  // "record of layer_003_expert_7 at 40960", "size", "file"
  std::string expected;
  std::string found;
};

// "model-core.safetensors: record of layer_000 at 4096: expected checksum xxh3:..., found xxh3:...".
std::string ProblemText(const VerifyProblem& problem);

struct VerifyReport {
  int64_t files = 0;                    // of the folder
  int64_t pieces = 0;                   // whose records were read
  int64_t bytes = 0;                    // read and compared
  std::vector<VerifyProblem> problems;  // the first kMaxVerifyProblems
  int64_t problem_count = 0;            // all of them

  bool ok() const { return problem_count == 0; }
};

inline constexpr size_t kMaxVerifyProblems = 1000;

// Called every few MB; false cancels. May be empty.
using VerifyProgress = std::function<bool(int64_t done, int64_t total)>;

// Reads the whole folder, from the drive rather than from the page cache where the system lets it. Whatever is wrong
// with the content - damaged, missing, cut, extended, swapped or foreign files - is a problem in the report and does
// not stop the rest. Errors: kNotFound when the folder or everything that makes it a pack is missing; kUnsupported for
// a pack of another format; kCancelled; kPermission and kIo only for the folder itself.
Result<VerifyReport> Verify(const std::string& folder, const VerifyProgress& progress = {});

}  // namespace nunspark

#endif  // NUNSPARK_PACK_VERIFY_H_
