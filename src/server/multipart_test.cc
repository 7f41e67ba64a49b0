#include "server/multipart.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nunspark::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// "name[filename]=data" of every field.
class Collect : public MultipartHandler {
 public:
  Status OnField(const MultipartField& field) override {
    fields.push_back(field.name + (field.filename ? "[" + *field.filename + "]" : "") + "=");
    return Status();
  }
  Status OnData(std::string_view data) override {
    EXPECT_FALSE(data.empty());
    fields.back() += data;
    return Status();
  }
  Status OnFieldEnd() override {
    ++ended;
    return Status();
  }

  std::vector<std::string> fields;
  size_t ended = 0;
};

Status Read(std::string_view body, size_t piece, Collect& collect) {
  MultipartReader reader("XyZ", collect);
  for (size_t at = 0; at < body.size(); at += piece) {
    const Status status = reader.Push(body.substr(at, piece));
    if (!status.ok()) return status;
  }
  return reader.Finish();
}

std::string Field(const std::string& head, const std::string& data) {
  return "--XyZ\r\nContent-Disposition: form-data; " + head + "\r\n\r\n" + data + "\r\n";
}

TEST(Multipart, GivesFieldsHoweverTheyAreCut) {
  const std::string body = "a preamble\r\n" + Field("name=\"purpose\"", "batch") +
                           Field("name=\"file\"; filename=\"a\\\"b;c.jsonl\"\r\nContent-Type: text/plain",
                                 "{}\r\n--Xy\r\n--\r\n\r\n--XyY\n") +
                           Field("filename=x; name=bare", "") + "--XyZ--\r\nan epilogue";
  for (size_t piece = 1; piece <= body.size(); ++piece) {
    Collect collect;
    const Status status = Read(body, piece, collect);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_THAT(collect.fields,
                ElementsAre("purpose=batch", "file[a\"b;c.jsonl]={}\r\n--Xy\r\n--\r\n\r\n--XyY\n", "bare[x]="));
    EXPECT_EQ(collect.ended, 3u);
  }
}

TEST(Multipart, IsCutOffAtEveryPlaceButTheEnd) {
  const std::string body = Field("name=a", "text") + Field("name=b", "") + "--XyZ--";
  for (size_t size = 0; size < body.size(); ++size) {
    Collect collect;
    const Status status = Read(std::string_view(body).substr(0, size), 7, collect);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(status.message(), HasSubstr("ends before its last boundary"));
  }
}

TEST(Multipart, SaysWhatIsWrongWithAForm) {
  const auto expect = [](const std::string& body, const char* part) {
    for (const size_t piece : {size_t{1}, body.size()}) {
      Collect collect;
      const Status status = Read(body, piece, collect);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(status.message(), HasSubstr(part));
    }
  };
  expect("--XyZ\r\n\r\ndata\r\n--XyZ--", "without Content-Disposition");
  expect("--XyZ\r\nContent-Disposition: attachment; name=a\r\n\r\n", "no form-data");
  expect("--XyZ\r\nContent-Disposition: form-data; filename=a\r\n\r\n", "without a name");
  expect("--XyZ\r\nContent-Disposition: form-data; name=\"a\r\n\r\n", "without a name");
  expect("--XyZ\r\nno header\r\n\r\n", "no colon");
  expect("--XyZoo\r\n", "not followed by a line end");
  expect("--XyZ" + std::string(100, ' '), "too many spaces");
  expect("--XyZ\r\nX: " + std::string(20000, 'x'), "longer than");
  std::string many;
  for (int64_t i = 0; i <= MultipartReader::kMostFields; ++i) many += Field("name=a", "");
  expect(many, "more than 10000 fields");
}

TEST(Multipart, AnErrorOfTheHandlerEndsIt) {
  class Refuse : public Collect {
    Status OnData(std::string_view) override { return ResourceExhaustedError("full"); }
  } refuse;
  EXPECT_EQ(Read(Field("name=a", "text") + "--XyZ--", 1000, refuse).code(), StatusCode::kResourceExhausted);
}

TEST(Multipart, TakesTheBoundaryFromTheContentType) {
  EXPECT_EQ(MultipartReader::BoundaryOf("multipart/form-data; boundary=abc").value(), "abc");
  EXPECT_EQ(MultipartReader::BoundaryOf("Multipart/Form-Data;charset=x ; BOUNDARY=\"a b;c\"").value(), "a b;c");
  for (const char* const bad : {"", "application/json", "multipart/form-data",
                                "multipart/form-data; boundary=", "multipart/form-data; boundary=\"abc"}) {
    EXPECT_EQ(MultipartReader::BoundaryOf(bad).status().code(), StatusCode::kInvalidArgument) << bad;
  }
  EXPECT_FALSE(MultipartReader::BoundaryOf("multipart/form-data; boundary=" + std::string(71, 'x')).ok());
}

}  // namespace
}  // namespace nunspark::server
