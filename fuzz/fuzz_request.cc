// Requests to the server: whatever is taken is within its ranges, by every API's table.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "server/request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace nunspark;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const auto& fields : {server::ChatFields(), server::CompletionFields(), server::MessagesFields()}) {
    const Result<server::TextRequest> request = server::ParseRequest(body, fields, {});
    if (!request.ok()) {
      const StatusCode code = request.status().code();
      CHECK(code == StatusCode::kInvalidArgument || code == StatusCode::kUnsupported);
      CHECK(!request.status().message().empty());
      continue;
    }
    CHECK(request->choices >= 1 && request->choices <= 64);
    CHECK(request->text.generate.logprobs >= -1);
    CHECK(request->reasoning_budget.value_or(-1) >= -1);
    CHECK(request->text.stops.size() <= 64);
    CHECK(request->messages.is_null() || request->messages.is_array());
    CHECK(request->tools.is_null() || request->tools.is_array());
  }
  return 0;
}
