#include "formats/tensor_index.h"

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nunspark {
namespace {

TensorInfo Named(std::string name, int64_t offset = 0, int32_t file = 0) {
  return {.name = std::move(name), .dtype = DType::kU8, .shape = {}, .file = file, .offset = offset, .bytes = 1};
}

TEST(TensorIndex, AnEmptyOneFindsNothing) {
  const TensorIndex index;
  EXPECT_EQ(index.Find("a"), nullptr);
  EXPECT_EQ(index.Find(""), nullptr);
}

TEST(TensorIndex, FindsWhatWasAddedOneByOneAndInLists) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    TensorIndex index;
    index.AddFile({.path = "f"});
    std::map<std::string, int64_t> model;
    int64_t next = 0;
    for (int step = 0; step < 6; ++step) {
      std::vector<TensorInfo> list;
      for (size_t count = random() % 300; count > 0; --count) {
        const std::string name = fmt::format("{}", random() % 100'000);
        if (!model.emplace(name, next).second) continue;
        list.push_back(Named(name, next++));
      }
      if (random() % 2 == 0) {
        ASSERT_TRUE(index.AddTensors(std::move(list)).ok());
      } else {
        for (TensorInfo& tensor : list) ASSERT_TRUE(index.AddTensor(std::move(tensor)).ok());
      }
      ASSERT_EQ(index.tensors().size(), model.size());
      for (int number = 0; number < 100'000; number += 7) {
        const std::string name = fmt::format("{}", number);
        const TensorInfo* const found = index.Find(name);
        const auto expected = model.find(name);
        ASSERT_EQ(found != nullptr, expected != model.end()) << name;
        if (found == nullptr) continue;
        ASSERT_EQ(found->offset, expected->second);
      }
    }
  }
}

TEST(TensorIndex, RefusesATensorThatIsThereAlready) {
  TensorIndex index;
  index.AddFile({.path = "first"});
  index.AddFile({.path = "second"});
  const std::string message = "tensor \"a\" is in first and again in second; expected once";
  ASSERT_TRUE(index.AddTensors({Named("a"), Named("b")}).ok());
  EXPECT_EQ(index.AddTensor(Named("a", 5, 1)).message(), message);
  EXPECT_EQ(index.AddTensors({Named("c"), Named("a", 5, 1)}).message(), message);
  EXPECT_EQ(index.tensors().size(), 3U);
  EXPECT_EQ(index.Find("a")->offset, 0);
  EXPECT_NE(index.Find("c"), nullptr);

  TensorIndex empty;
  empty.AddFile({.path = "first"});
  empty.AddFile({.path = "second"});
  EXPECT_EQ(empty.AddTensors({Named("a"), Named("b"), Named("a", 5, 1), Named("c")}).message(), message);
  EXPECT_EQ(empty.tensors().size(), 2U);
  EXPECT_EQ(empty.Find("a")->offset, 0);
  EXPECT_EQ(empty.Find("c"), nullptr);
}

}  // namespace
}  // namespace nunspark
