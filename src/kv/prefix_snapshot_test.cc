#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "io/test_folder.h"
#include "kv/prefix_store.h"
#include "kv/test_numbers.h"

namespace nunspark {
namespace {

using testing::HasSubstr;

constexpr std::string_view kModel = "model 1, i16, kv f32";

class PrefixSnapshot : public testing::Test {
 protected:
  PrefixSnapshot() { layers_[1].window = 60; }

  std::unique_ptr<KvPool> Pool(int64_t blocks) const { return std::move(KvPool::Create(layers_, blocks * 64)).value(); }

  static std::vector<int32_t> Tokens(std::initializer_list<int32_t> blocks) {
    std::vector<int32_t> tokens;
    for (const int32_t block : blocks) {
      for (int32_t i = 0; i < 64; ++i) tokens.push_back(block * 64 + i);
    }
    return tokens;
  }

  static void Insert(PrefixStore& store, KvPool& pool, std::initializer_list<int32_t> blocks, uint32_t salt,
                     float first) {
    KvSequence sequence(pool);
    const std::vector<int32_t> tokens = Tokens(blocks);
    Extend(sequence, std::ssize(tokens), first);
    store.Insert(tokens, salt, sequence);
  }

  // Three conversations, two of one beginning, one whose windowed layer has lost its first block.
  void Fill(PrefixStore& store, KvPool& pool) const {
    Insert(store, pool, {1, 2}, 0, 100);
    Insert(store, pool, {1, 3, 4}, 0, 200);
    KvSequence sequence(pool), shorter(pool);
    Extend(sequence, 128, 300);
    for (size_t at = 0; at < 2; ++at) {
      const int32_t kept[] = {sequence.block(0, at), at == 0 ? kNoKvBlock : sequence.block(1, at)};
      EXPECT_TRUE(shorter.AppendShared(kept).ok());
    }
    store.Insert(Tokens({7, 8}), 5, shorter);
  }

  std::string Saved() {
    auto pool = Pool(20);
    PrefixStore store(*pool, pool->bytes());
    Fill(store, *pool);
    EXPECT_TRUE(store.Save(kModel, folder_.Path("saved")).ok());
    return std::move(ReadWholeFile(folder_.Path("saved"))).value();
  }

  // Loading these bytes finds the fault, and nothing stays behind.
  Status Load(std::string_view bytes) {
    auto pool = Pool(6);
    Status status;
    {
      PrefixStore store(*pool, pool->bytes());
      status = store.Load(kModel, folder_.Write("changed", bytes));
      EXPECT_TRUE(status.ok() || store.nodes() == 0);
    }
    EXPECT_EQ(pool->used_bytes(), 0);
    return status;
  }

  std::vector<KvLayerShape> layers_ = kPair;
  TestFolder folder_;
};

TEST_F(PrefixSnapshot, RestoresWhatWasSaved) {
  Saved();
  auto pool = Pool(20);
  PrefixStore store(*pool, pool->bytes());
  ASSERT_TRUE(store.Load(kModel, folder_.Path("saved")).ok());
  EXPECT_EQ(store.nodes(), 6);
  EXPECT_EQ(pool->used_bytes(), store.bytes());
  KvSequence sequence(*pool);
  std::vector<int32_t> tokens = Tokens({1, 3, 4, 9});
  ASSERT_EQ(store.Match(tokens, 0, sequence), 192);
  // The first block was computed with the conversation that came first.
  std::vector<float> numbers = Numbers(100, 64);
  for (const float number : Numbers(264, 128)) numbers.push_back(number);
  const KvView view = sequence.View(0);
  for (size_t p = 0; p < numbers.size(); ++p) {
    ASSERT_EQ(ReadBack(view, 1, static_cast<int64_t>(p), 5, true), -numbers[p] - 21.0f / 64) << p;
  }
  EXPECT_EQ(store.Match(Tokens({7, 8, 9}), 5, sequence), 128);
  EXPECT_EQ(sequence.block(1, 0), kNoKvBlock);
  EXPECT_EQ(store.Match(Tokens({7, 8, 9}), 0, sequence), 0);
  EXPECT_EQ(store.Match(Tokens({1, 2, 9}), 0, sequence), 128);
  ExpectNumbers(sequence, Numbers(100, 128));
}

TEST_F(PrefixSnapshot, SavedAgainItIsTheSameFile) {
  const std::string first = Saved();
  auto pool = Pool(20);
  PrefixStore store(*pool, pool->bytes());
  ASSERT_TRUE(store.Load(kModel, folder_.Path("saved")).ok());
  ASSERT_TRUE(store.Save(kModel, folder_.Path("again")).ok());
  EXPECT_TRUE(*ReadWholeFile(folder_.Path("again")) == first);
}

TEST_F(PrefixSnapshot, IsForItsOwnerAlone) {
  Saved();
  struct stat info = {};
  ASSERT_EQ(::stat(folder_.Path("saved").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
}

TEST_F(PrefixSnapshot, ASmallerStoreKeepsWhatWasUsedLast) {
  Saved();
  auto pool = Pool(3);
  PrefixStore store(*pool, pool->bytes());
  ASSERT_TRUE(store.Load(kModel, folder_.Path("saved")).ok());
  EXPECT_EQ(store.nodes(), 3);
  KvSequence sequence(*pool, 128);
  EXPECT_EQ(store.Match(Tokens({7, 8, 9}), 5, sequence), 128);
  sequence.Truncate(0);
  auto running = Pool(20);
  PrefixStore budgeted(*running, 2 * (running->block_bytes(0) + running->block_bytes(1)));
  ASSERT_TRUE(budgeted.Load(kModel, folder_.Path("saved")).ok());
  EXPECT_LE(budgeted.bytes(), budgeted.budget_bytes());
  EXPECT_EQ(budgeted.nodes(), 2);
}

TEST_F(PrefixSnapshot, IsRefusedByAnotherModelOrVersion) {
  std::string bytes = Saved();
  auto pool = Pool(20);
  PrefixStore store(*pool, pool->bytes());
  const Status missing = store.Load(kModel, folder_.Path("none"));
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  const Status other = store.Load("model 2, i16, kv f32", folder_.Path("saved"));
  EXPECT_EQ(other.code(), StatusCode::kUnsupported);
  EXPECT_THAT(other.message(), HasSubstr("saved by another model or with other settings"));
  std::swap(layers_[0], layers_[1]);
  EXPECT_THAT(Load(bytes).message(), HasSubstr("its layers differ"));
  std::swap(layers_[0], layers_[1]);
  layers_.push_back(layers_[0]);
  EXPECT_THAT(Load(bytes).message(), HasSubstr("its layers differ"));
  layers_.pop_back();
  ++bytes[8];
  const Status version = Load(bytes);
  EXPECT_EQ(version.code(), StatusCode::kUnsupported);
  EXPECT_THAT(version.message(), HasSubstr("expected format version 1, found 2"));
}

TEST_F(PrefixSnapshot, EveryTruncationAndEveryChangedByteIsFound) {
  const std::string bytes = Saved();
  for (size_t size = 0; size < bytes.size(); size += size < 400 ? 3 : 4999) {
    ASSERT_EQ(Load(bytes.substr(0, size)).code(), StatusCode::kDataLoss) << size;
  }
  for (size_t at = 0; at < bytes.size(); at += at < 700 ? 3 : 4999) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    ASSERT_FALSE(Load(changed).ok()) << at;
  }
  EXPECT_THAT(Load(bytes + "x").message(), HasSubstr("found"));
  EXPECT_TRUE(Load(bytes).ok());
}

// Each record is whole by itself.
TEST_F(PrefixSnapshot, RecordsThatChangedPlacesAreFound) {
  const std::string bytes = Saved();
  constexpr size_t kBlocks = 16384 + 12288, kAround = 4 + 4 + 256 + 1 + 8;
  const size_t first = 32 + kModel.size() + 2 * 8 + 8;
  ASSERT_EQ(bytes.size(), first + 6 * kAround + 6 * kBlocks - 12288);
  const size_t second = first + kAround + 16384, record = kAround + kBlocks;
  std::string changed = bytes;
  std::swap_ranges(&changed[second], &changed[second + record], &changed[second + record]);
  EXPECT_THAT(Load(changed).message(), HasSubstr("corrupt"));
}

// A full disk leaves the file of before.
TEST_F(PrefixSnapshot, AFailedSaveLeavesTheOldFile) {
  const std::string bytes = Saved();
  auto pool = Pool(20);
  PrefixStore store(*pool, pool->bytes());
  Fill(store, *pool);
  EXPECT_FALSE(store.Save(kModel, folder_.Path("missing/saved")).ok());
  EXPECT_FALSE(store.Save(kModel, "/dev/full").ok());
  EXPECT_EQ(*ReadWholeFile(folder_.Path("saved")), bytes);
}

}  // namespace
}  // namespace nunspark
