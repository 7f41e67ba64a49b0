// The file of a warm start: whatever it says, what is taken from it fits the model, and is written as it was read. The
// checksum is put right first, or nothing behind it would ever be reached.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/content_hash.h"
#include "weights/warm_start.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark;
  constexpr std::string_view kModel = "0123456789abcdef0123456789abcdef";
  constexpr int32_t kLayers = 3, kExperts = 10;
  const std::string raw(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {raw, raw + ChecksumOf(raw) + "\n"}) {
    const Result<std::vector<ExpertUses>> uses = ParseWarmStart(text, kModel, kLayers, kExperts);
    CHECK(uses.ok() || !uses.status().message().empty());
    if (!uses.ok()) continue;
    std::set<std::pair<int32_t, int32_t>> seen;
    for (const ExpertUses& entry : *uses) {
      CHECK(entry.layer >= 0 && entry.layer < kLayers && entry.expert >= 0 && entry.expert < kExperts);
      CHECK(entry.uses > 0 && seen.emplace(entry.layer, entry.expert).second);
    }
    CHECK(ParseWarmStart(WriteWarmStart(kModel, *uses), kModel, kLayers, kExperts).value() == *uses);
    CHECK(AddUses(*uses, *uses, 100).size() == uses->size());
  }
  return 0;
}
