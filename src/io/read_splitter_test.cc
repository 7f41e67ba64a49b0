#include "io/read_splitter.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

using Memory = std::unique_ptr<uint8_t, void (*)(void*)>;

Memory Allocate(int64_t bytes) {
  return {static_cast<uint8_t*>(std::aligned_alloc(static_cast<size_t>(kIoAlignment), static_cast<size_t>(bytes))),
          &std::free};
}

class ReadSplitterTest : public ::testing::Test {
 protected:
  void Open(std::string content, bool direct) {
    content_ = std::move(content);
    Result<std::vector<QueueFile>> files = OpenQueueFiles({folder_.Write("data", content_)}, DirectIo::kNo);
    ASSERT_TRUE(files.ok());
    files_ = std::move(files).value();
    files_[0].direct = direct;  // how results are judged; the reads are played by the test
  }

  // Plays a read that delivers at most `limit` bytes.
  int64_t Deliver(const ReadCall& call, int64_t limit) const {
    const int64_t left = std::max<int64_t>(0, static_cast<int64_t>(content_.size()) - call.offset);
    const int64_t bytes = std::min({call.bytes, left, limit});
    std::memcpy(call.dst, content_.data() + call.offset, static_cast<size_t>(bytes));
    return bytes;
  }

  Status OneRead(ReadSplitter& splitter, const std::vector<int64_t>& results) {
    const Memory memory = Allocate(4096);
    splitter.Add({.file = 0, .offset = 0, .bytes = 4096, .dst = memory.get(), .tag = 7});
    Chunk chunk;
    EXPECT_TRUE(splitter.Next(chunk));
    for (size_t i = 0; i < results.size(); ++i) {
      const ReadSplitter::Step step = splitter.Apply(chunk, results[i]);
      EXPECT_EQ(step == ReadSplitter::Step::kFinished, i + 1 == results.size()) << i;
    }
    std::vector<ReadCompletion> done;
    EXPECT_TRUE(splitter.TakeCompletions(done));
    EXPECT_EQ(done[0].tag, 7U);
    return done[0].status;
  }

  TestFolder folder_;
  std::string content_;
  std::vector<QueueFile> files_;
};

TEST_F(ReadSplitterTest, CutsRequestsAndCompletesThemOnce) {
  Open(std::string(40960, 'x'), false);
  ReadSplitter splitter(files_, 10000);  // rounded up to 12288
  const Memory memory = Allocate(40960);
  splitter.Add({.file = 0, .offset = 0, .bytes = 40960, .dst = memory.get(), .tag = 1});
  std::vector<Chunk> chunks;
  for (Chunk chunk; splitter.Next(chunk);) chunks.push_back(chunk);
  ASSERT_EQ(chunks.size(), 4U);
  EXPECT_EQ(splitter.Call(chunks[1]).offset, 12288);
  EXPECT_EQ(splitter.Call(chunks[3]).bytes, 4096);
  EXPECT_EQ(splitter.Call(chunks[3]).dst, memory.get() + 36864);
  for (Chunk& chunk : chunks) {
    EXPECT_FALSE(splitter.HasCompletions());
    EXPECT_EQ(splitter.Apply(chunk, chunk.bytes), ReadSplitter::Step::kFinished);
  }
  std::vector<ReadCompletion> done;
  EXPECT_TRUE(splitter.TakeCompletions(done));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].status.ok());
  EXPECT_FALSE(splitter.HasChunksOut());
}

TEST_F(ReadSplitterTest, RetriesTransientErrorsOnce) {
  Open(std::string(4096, 'x'), false);
  ReadSplitter splitter(files_, 4096);
  EXPECT_TRUE(OneRead(splitter, {-EINTR, 4096}).ok());
  EXPECT_TRUE(OneRead(splitter, {-EAGAIN, 4096}).ok());
  EXPECT_TRUE(OneRead(splitter, {-EAGAIN, 100, -EINTR, 3996}).ok());  // progress in between
  EXPECT_EQ(OneRead(splitter, {-EINTR, -EINTR}).code(), StatusCode::kIo);
  EXPECT_EQ(OneRead(splitter, {-EAGAIN, -EINTR}).code(), StatusCode::kIo);
}

TEST_F(ReadSplitterTest, DeviceErrorsNameEverything) {
  Open(std::string(8192, 'x'), false);
  ReadSplitter splitter(files_, 4096);
  const Status status = OneRead(splitter, {-EIO});
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message(),
            "read of 4096 bytes at 0 in " + folder_.Path("data") + " failed: Input/output error (EIO)");
}

TEST_F(ReadSplitterTest, EarlyEndIsDataLoss) {
  Open(std::string(4096, 'x'), false);
  ReadSplitter splitter(files_, 4096);
  const Status status = OneRead(splitter, {1000, 0});
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("found its end at 1000"));
}

TEST_F(ReadSplitterTest, DirectReadsContinueOnABoundary) {
  Open(RandomBytes(16384, 3), true);
  ReadSplitter splitter(files_, 16384);
  const Memory memory = Allocate(16384);
  splitter.Add({.file = 0, .offset = 0, .bytes = 16384, .dst = memory.get(), .tag = 1});
  Chunk chunk;
  ASSERT_TRUE(splitter.Next(chunk));
  EXPECT_EQ(splitter.Apply(chunk, 9000), ReadSplitter::Step::kAgain);
  EXPECT_EQ(splitter.Call(chunk).offset, 8192);
  EXPECT_EQ(splitter.Call(chunk).bytes, 8192);
  // Less than one unit twice running is no way to finish.
  EXPECT_EQ(splitter.Apply(chunk, 100), ReadSplitter::Step::kAgain);
  EXPECT_EQ(splitter.Apply(chunk, 100), ReadSplitter::Step::kFinished);
  std::vector<ReadCompletion> done;
  splitter.TakeCompletions(done);
  EXPECT_EQ(done[0].status.code(), StatusCode::kIo);
}

TEST_F(ReadSplitterTest, AFailureStopsTheRestOfItsRequestOnly) {
  Open(std::string(40960, 'x'), false);
  ReadSplitter splitter(files_, 4096);
  const Memory memory = Allocate(40960);
  splitter.Add({.file = 0, .offset = 0, .bytes = 40960, .dst = memory.get(), .tag = 1});
  splitter.Add({.file = 0, .offset = 0, .bytes = 8192, .dst = memory.get(), .tag = 2});
  Chunk first;
  Chunk second;
  ASSERT_TRUE(splitter.Next(first));
  ASSERT_TRUE(splitter.Next(second));
  splitter.Apply(first, -EIO);
  EXPECT_FALSE(splitter.HasCompletions()) << "a chunk of the request is still out";
  Chunk other;
  ASSERT_TRUE(splitter.Next(other));
  EXPECT_NE(other.read, first.read);
  splitter.Apply(second, 4096);
  std::vector<ReadCompletion> done;
  splitter.TakeCompletions(done);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].tag, 1U);
  EXPECT_EQ(done[0].status.code(), StatusCode::kIo);
}

TEST_F(ReadSplitterTest, DroppedRequestsDoNotComplete) {
  Open(std::string(40960, 'x'), false);
  ReadSplitter splitter(files_, 4096);
  const Memory memory = Allocate(40960);
  for (uint64_t tag = 0; tag < 3; ++tag) {
    splitter.Add({.file = 0, .offset = 0, .bytes = 8192, .dst = memory.get(), .tag = tag});
  }
  Chunk chunk;
  ASSERT_TRUE(splitter.Next(chunk));
  splitter.DropWaiting();
  EXPECT_TRUE(splitter.HasChunksOut());
  Chunk none;
  EXPECT_FALSE(splitter.Next(none));
  splitter.Apply(chunk, 4096);
  EXPECT_FALSE(splitter.HasChunksOut());
}

// Random requests over a file whose end is not aligned, random short results, transient errors in between, chunks
// finished in random order: the bytes must be right.
TEST_F(ReadSplitterTest, DeliversTheRightBytesWhateverTheCallsReturn) {
  for (const bool direct : {false, true}) {
    Open(RandomBytes(200'001, 4), direct);
    std::mt19937 random(direct ? 5 : 6);
    ReadSplitter splitter(files_, 16384);
    for (int round = 0; round < 50; ++round) {
      struct Wanted {
        int64_t offset;
        int64_t bytes;
        Memory memory;
      };
      std::vector<Wanted> wanted;
      const int64_t units = 200'001 / kIoAlignment + 1;
      for (int i = 0; i < 10; ++i) {
        const int64_t first = static_cast<int64_t>(random()) % units;
        const int64_t count = 1 + static_cast<int64_t>(random()) % (units - first);
        wanted.push_back({first * kIoAlignment, count * kIoAlignment, Allocate(count * kIoAlignment)});
        splitter.Add({.file = 0,
                      .offset = wanted.back().offset,
                      .bytes = wanted.back().bytes,
                      .dst = wanted.back().memory.get(),
                      .tag = static_cast<uint64_t>(i)});
      }
      std::vector<Chunk> out;
      std::vector<ReadCompletion> done;
      while (done.size() < wanted.size()) {
        for (Chunk chunk; out.size() < 8 && splitter.Next(chunk);) out.push_back(chunk);
        const size_t pick = random() % out.size();
        const bool transient = random() % 8 == 0 && out[pick].retries == 0;
        const int64_t limit =
            direct ? kIoAlignment + static_cast<int64_t>(random() % 20000) : 1 + static_cast<int64_t>(random() % 20000);
        const int64_t result = transient ? -EINTR : Deliver(splitter.Call(out[pick]), limit);
        if (splitter.Apply(out[pick], result) == ReadSplitter::Step::kFinished) {
          out.erase(out.begin() + static_cast<std::ptrdiff_t>(pick));
        }
        splitter.TakeCompletions(done);
      }
      for (const ReadCompletion& completion : done) {
        const Wanted& read = wanted[completion.tag];
        ASSERT_TRUE(completion.status.ok()) << completion.status.message();
        const int64_t present = std::min<int64_t>(read.bytes, 200'001 - read.offset);
        ASSERT_EQ(std::memcmp(read.memory.get(), content_.data() + read.offset, static_cast<size_t>(present)), 0);
      }
    }
  }
}

}  // namespace
}  // namespace nunspark
