#include "io/mirror_queue.h"

#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "io/test_folder.h"

namespace nunspark {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFileBytes = 4 << 20;

std::string Content(char fill) {
  std::string content(static_cast<size_t>(kFileBytes), fill);
  for (size_t i = 0; i < content.size(); i += 512) content[i] = static_cast<char>(i / 512);
  return content;
}

// Two files and their copies; the fill byte tells which copy was read.
struct Mirrored {
  explicit Mirrored(char copy_fill = 'b') {
    for (const char* name : {"one", "two"}) {
      paths.push_back(folder.Path(std::string("a_") + name));
      copies.push_back(folder.Path(std::string("b_") + name));
      EXPECT_TRUE(WriteFileAtomically(paths.back(), Content('a')).ok());
      EXPECT_TRUE(WriteFileAtomically(copies.back(), Content(copy_fill)).ok());
    }
  }

  std::unique_ptr<ReadQueue> Open() const {
    std::vector<std::string> all = paths;
    all.insert(all.end(), copies.begin(), copies.end());
    return MakeMirrorQueue(OpenReadQueue(all, {.direct = false}).value(), 2);
  }

  TestFolder folder;
  std::vector<std::string> paths, copies;
};

TEST(MirrorQueue, ReadsFromBothCopiesAndCompletesEachRequestOnce) {
  const Mirrored files;
  const std::unique_ptr<ReadQueue> queue = files.Open();
  std::mt19937 random(3);
  std::map<uint64_t, ReadRequest> requests;
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> memory;
  for (uint64_t tag = 100; tag < 140; ++tag) {
    const int64_t bytes = kIoAlignment * (1 + static_cast<int64_t>(random() % 300));
    memory.emplace_back(static_cast<uint8_t*>(std::aligned_alloc(kIoAlignment, static_cast<size_t>(bytes))),
                        &std::free);
    const ReadRequest request{
        .file = static_cast<int32_t>(tag % 2),
        .offset =
            kIoAlignment * static_cast<int64_t>(random() % static_cast<uint64_t>((kFileBytes - bytes) / kIoAlignment)),
        .bytes = bytes,
        .dst = memory.back().get(),
        .tag = tag};
    requests.emplace(tag, request);
    queue->Submit(request);
  }
  int64_t from_a = 0, from_b = 0;
  std::vector<ReadCompletion> done;
  while (!requests.empty()) {
    done.clear();
    queue->Poll(ReadQueue::Wait::kYes, done);
    for (const ReadCompletion& completion : done) {
      ASSERT_TRUE(completion.status.ok());
      const auto place = requests.find(completion.tag);
      ASSERT_NE(place, requests.end());
      const ReadRequest& request = place->second;
      for (int64_t at = 0; at < request.bytes; at += 512) {
        ASSERT_EQ(request.dst[at], static_cast<uint8_t>((request.offset + at) / 512));
        (request.dst[at + 1] == 'a' ? from_a : from_b) += 512;
      }
      requests.erase(place);
    }
  }
  EXPECT_GT(from_a, (from_a + from_b) / 3);
  EXPECT_GT(from_b, (from_a + from_b) / 3);
}

TEST(MirrorQueue, WhatOneCopyFailsToReadIsReadFromTheOther) {
  for (const int64_t bytes : {int64_t{128} << 10, int64_t{2} << 20}) {
    for (const char damaged : {'a', 'b'}) {
      const Mirrored files;
      const std::unique_ptr<ReadQueue> queue = files.Open();
      std::filesystem::resize_file(damaged == 'a' ? files.paths[0] : files.copies[0], 4096);
      std::unique_ptr<uint8_t, void (*)(void*)> memory(
          static_cast<uint8_t*>(std::aligned_alloc(kIoAlignment, static_cast<size_t>(bytes))), &std::free);
      // The first goes to copy a; with it in flight a small second one would go to b.
      std::vector<ReadCompletion> done;
      queue->Submit({.file = 0, .offset = 1 << 20, .bytes = bytes, .dst = memory.get(), .tag = 7});
      while (done.empty()) queue->Poll(ReadQueue::Wait::kYes, done);
      ASSERT_EQ(done.size(), 1u);
      EXPECT_EQ(done[0].tag, 7u);
      ASSERT_TRUE(done[0].status.ok()) << done[0].status.message();
      for (int64_t at = 0; at < bytes; at += 512) {
        ASSERT_EQ(memory.get()[at], static_cast<uint8_t>(((1 << 20) + at) / 512));
        const char read_from = damaged == 'a' ? 'b' : 'a';
        ASSERT_TRUE(bytes < (512 << 10) || memory.get()[at + 1] == read_from);
      }
      const bool failed_once = damaged == 'a' || bytes > (512 << 10);
      EXPECT_EQ(queue->Description().find("1 reads that failed") != std::string::npos, failed_once);
    }
  }
}

TEST(MirrorQueue, ARequestThatBothCopiesFailFailsOnceAndNamesBoth) {
  const Mirrored files;
  const std::unique_ptr<ReadQueue> queue = files.Open();
  std::filesystem::resize_file(files.copies[0], 4096);
  std::filesystem::resize_file(files.paths[0], 4096);
  std::unique_ptr<uint8_t, void (*)(void*)> memory(static_cast<uint8_t*>(std::aligned_alloc(kIoAlignment, 2 << 20)),
                                                   &std::free);
  queue->Submit({.file = 0, .offset = 1 << 20, .bytes = 2 << 20, .dst = memory.get(), .tag = 7});
  std::vector<ReadCompletion> done;
  queue->Poll(ReadQueue::Wait::kYes, done);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].tag, 7u);
  EXPECT_THAT(done[0].status.message(), HasSubstr(files.copies[0]));
  EXPECT_THAT(done[0].status.message(), HasSubstr(files.paths[0]));
  EXPECT_EQ(done[0].status.code(), StatusCode::kDataLoss);
}

TEST(MirrorQueue, WakeEndsAWait) {
  const Mirrored files;
  const std::unique_ptr<ReadQueue> queue = files.Open();
  queue->Wake();
  std::vector<ReadCompletion> done;
  queue->Poll(ReadQueue::Wait::kYes, done);
  EXPECT_TRUE(done.empty());
}

TEST(CheckMirror, TellsCopiesFromOtherFiles) {
  const Mirrored same('a'), other('b');
  EXPECT_TRUE(CheckMirror(same.paths, same.copies).ok());
  EXPECT_THAT(CheckMirror(other.paths, other.copies).message(), HasSubstr("is no copy of"));
  std::filesystem::resize_file(same.copies[1], kFileBytes - 1);
  EXPECT_THAT(CheckMirror(same.paths, same.copies).message(), HasSubstr("expected 4194304 bytes, found 4194303"));
  std::filesystem::remove(same.copies[1]);
  EXPECT_EQ(CheckMirror(same.paths, same.copies).code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace nunspark
