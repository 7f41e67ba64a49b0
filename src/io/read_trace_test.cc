#include "io/read_trace.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFileBytes = 1 << 20;

class ReadTraceTest : public ::testing::Test {
 protected:
  // Reads some of the file through a traced queue; false when a read fails.
  bool Run(const std::vector<TracedRead>& reads) {
    const ReadQueueOptions options{.depth = 4, .split_bytes = 64 << 10};
    auto queue = TraceReads(OpenReadQueue({path_}, options).value(), {path_}, options, trace_path_).value();
    const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, kFileBytes), &std::free);
    std::vector<ReadCompletion> done;
    for (const TracedRead& read : reads) {
      queue->Submit(
          {.file = 0, .offset = read.offset, .bytes = read.bytes, .dst = static_cast<uint8_t*>(memory.get())});
    }
    while (done.size() < reads.size()) queue->Poll(ReadQueue::Wait::kYes, done);
    bool ok = true;
    for (const ReadCompletion& completion : done) ok = ok && completion.status.ok();
    return ok;
  }

  // The error of loading `text`.
  std::string Refusal(const std::string& text) {
    const Result<ReadTrace> trace = LoadReadTrace(folder_.Write("other", text));
    EXPECT_FALSE(trace.ok()) << text;
    return trace.ok() ? "" : trace.status().message();
  }

  TestFolder folder_;
  const std::string path_ = folder_.Write("data", RandomBytes(kFileBytes, 1));
  const std::string trace_path_ = folder_.Path("trace");
  const std::vector<TracedRead> reads_ = {
      {.offset = 0, .bytes = 8192}, {.offset = 409600, .bytes = 409600}, {.offset = 4096, .bytes = 4096}};
};

TEST_F(ReadTraceTest, HoldsEveryRequestInOrder) {
  ASSERT_TRUE(Run(reads_));
  const Result<ReadTrace> trace = LoadReadTrace(trace_path_);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->paths, std::vector<std::string>{path_});
  EXPECT_EQ(trace->depth, 4);
  EXPECT_EQ(trace->split_bytes, 64 << 10);
  ASSERT_EQ(trace->reads.size(), reads_.size());
  int64_t before = 0;
  for (size_t i = 0; i < reads_.size(); ++i) {
    EXPECT_EQ(trace->reads[i].offset, reads_[i].offset);
    EXPECT_EQ(trace->reads[i].bytes, reads_[i].bytes);
    EXPECT_GE(trace->reads[i].us, before);
    before = trace->reads[i].us;
  }
}

TEST_F(ReadTraceTest, ReplayReadsAllOfItOrItsEnd) {
  ASSERT_TRUE(Run(reads_));
  const ReadTrace trace = LoadReadTrace(trace_path_).value();
  const Result<ReplayResult> all = ReplayReads(trace);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->requests, 3);
  EXPECT_EQ(all->bytes, 8192 + 409600 + 4096);
  EXPECT_GT(all->seconds, 0);
  EXPECT_EQ(ReplayReads(trace, 4096)->requests, 1);
  EXPECT_EQ(ReplayReads(trace, 4097)->requests, 2);
  EXPECT_FALSE(ReplayReads(trace, 0).ok());
}

TEST_F(ReadTraceTest, ReplayReportsAFailedRead) {
  ASSERT_TRUE(Run(reads_));
  ReadTrace trace = LoadReadTrace(trace_path_).value();
  trace.reads.push_back({.offset = kFileBytes, .bytes = 4096});
  EXPECT_THAT(ReplayReads(trace).status().message(), HasSubstr(path_));
}

TEST_F(ReadTraceTest, TracingChangesNoResult) {
  EXPECT_FALSE(Run({{.offset = kFileBytes, .bytes = 4096}}));
  EXPECT_EQ(LoadReadTrace(trace_path_)->reads.size(), 1U);
}

TEST_F(ReadTraceTest, RefusesWhatIsNoCompleteTrace) {
  const std::string head = R"({"files":["a"],"depth":4,"split_bytes":65536,"direct":true})"
                           "\n";
  const std::string read = R"({"file":0,"offset":4096,"bytes":4096,"us":1})"
                           "\n";
  EXPECT_TRUE(LoadReadTrace(folder_.Write("good", head + read + "{\"requests\":1}\n")).ok());
  EXPECT_THAT(Refusal(""), HasSubstr("no last line"));
  EXPECT_THAT(Refusal(head + read), HasSubstr("no last line"));
  EXPECT_THAT(Refusal(head + read + "{\"requests\":2}\n"), HasSubstr("expected the last line, after 2"));
  EXPECT_THAT(Refusal(head + "{\"requests\":0}\n" + read), HasSubstr("expected the last line"));
  EXPECT_THAT(Refusal(read + "{\"requests\":1}\n"), HasSubstr("not the first line"));
  for (const char* bad :
       {R"({"file":1,"offset":0,"bytes":4096,"us":0})", R"({"file":0,"offset":1,"bytes":4096,"us":0})",
        R"({"file":0,"offset":0,"bytes":0,"us":0})", R"({"file":0,"offset":-4096,"bytes":4096,"us":0})",
        R"({"file":0,"offset":0,"bytes":4096})", "[]"}) {
    EXPECT_THAT(Refusal(head + bad + "\n{\"requests\":1}\n"), HasSubstr("line 2")) << bad;
  }
  for (const char* bad : {R"({"files":["a"],"depth":0,"split_bytes":65536,"direct":true})",
                          R"({"files":"a","depth":4,"split_bytes":65536,"direct":true})",
                          R"({"files":[1],"depth":4,"split_bytes":65536,"direct":true})",
                          R"({"files":["a"],"depth":4,"split_bytes":99999999999,"direct":true})", "{}"}) {
    EXPECT_THAT(Refusal(std::string(bad) + "\n{\"requests\":0}\n"), HasSubstr("not the first line")) << bad;
  }
}

TEST_F(ReadTraceTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_FALSE(TraceReads(OpenReadQueue({path_}, {}).value(), {path_}, {}, folder_.Path("no/trace")).ok());
}

}  // namespace
}  // namespace nunspark
