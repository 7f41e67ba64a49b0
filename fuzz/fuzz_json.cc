// JSON documents: whatever is accepted reads back equal after being written, compact and indented.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark;
  const Result<Json> json = ParseJson({reinterpret_cast<const char*>(data), size}, "input");
  if (!json.ok()) {
    CHECK(json.status().code() == StatusCode::kDataLoss);
    return 0;
  }
  for (const int indent : {0, 2}) {
    const std::string text = WriteJson(*json, indent);
    const Result<Json> again = ParseJson(text, "output");
    CHECK(again.ok());
    // Infinities (numbers like 1e999) are written as null: only the second text must stay as it is.
    CHECK(WriteJson(*again, indent) == text);
  }
  return 0;
}
