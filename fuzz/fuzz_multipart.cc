// Forms as clients upload them: the first byte says how the rest is cut. However it is cut, it comes to the same, and
// no field's data holds the boundary.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/multipart.h"

namespace {

using namespace nunspark;
using namespace nunspark::server;

class Collect : public MultipartHandler {
 public:
  Status OnField(const MultipartField& field) override {
    CHECK(!open_);
    open_ = true;
    CHECK(++fields_ <= MultipartReader::kMostFields);
    CHECK(field.name.size() <= MultipartReader::kMostHeadBytes);
    text += "field " + field.name + "/" + field.filename.value_or("-") + ":";
    data_.clear();
    return Status();
  }
  Status OnData(std::string_view data) override {
    CHECK(open_ && !data.empty());
    data_ += data;
    CHECK(data_.find("\r\n--b") == std::string::npos);
    return Status();
  }
  Status OnFieldEnd() override {
    CHECK(open_);
    open_ = false;
    text += data_ + "\n";
    return Status();
  }
  std::string text;

 private:
  std::string data_;
  int64_t fields_ = 0;
  bool open_ = false;
};

std::string Read(std::string_view body, size_t piece) {
  Collect collect;
  MultipartReader reader("b", collect);
  Status status;
  for (size_t at = 0; at < body.size() && status.ok(); at += piece) status = reader.Push(body.substr(at, piece));
  if (status.ok()) status = reader.Finish();
  CHECK(status.ok() || status.code() == StatusCode::kInvalidArgument);
  return collect.text + status.message();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  (void)MultipartReader::BoundaryOf(text);
  const std::string whole = Read(text, text.size() + 1);
  CHECK(Read(text, 1) == whole);
  CHECK(Read(text, 1 + data[0]) == whole);
  return 0;
}
