#include "server/batch_store.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"
#include "server/batch_input.h"

namespace nunspark::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Opened {
  TestFolder test;
  DataFolder folder = DataFolder::Open(test.path()).value();
  BatchStore store = BatchStore::Open(folder).value();

  std::string Upload(const std::string& id, const std::string& content) {
    AtomicFile file = store.CreateFile(id).value();
    EXPECT_TRUE(file.Append(content).ok() && file.Commit().ok());
    EXPECT_TRUE(
        store.AddFile({.id = id, .bytes = std::ssize(content), .created_at = 7, .filename = id, .purpose = "batch"})
            .ok());
    return id;
  }
  BatchRecord Batch(const std::string& id, const std::string& file) {
    BatchRecord batch;
    batch.id = id;
    batch.endpoint = "/v1/completions";
    batch.input_file_id = file;
    batch.completion_window = "24h";
    batch.created_at = 10;
    batch.expires_at = 20;
    const Status status = store.AddBatch(batch);
    EXPECT_TRUE(status.ok()) << status.message();
    return batch;
  }
};

std::vector<std::string> IdsOf(const std::vector<FileRecord>& files) {
  std::vector<std::string> ids;
  for (const FileRecord& file : files) ids.push_back(file.id);
  return ids;
}

TEST(BatchStore, ListsFilesInPagesFromEitherEnd) {
  Opened opened;
  for (const char* const id : {"a", "b", "c"}) opened.Upload(id, "x");
  EXPECT_THAT(IdsOf(opened.store.ListFiles({.purpose = "", .after = "", .limit = 2}).value()), ElementsAre("c", "b"));
  EXPECT_THAT(IdsOf(opened.store.ListFiles({.purpose = "batch", .after = "b", .limit = 9}).value()), ElementsAre("a"));
  EXPECT_THAT(IdsOf(opened.store.ListFiles({.purpose = "batch", .after = "a", .limit = 9, .ascending = true}).value()),
              ElementsAre("b", "c"));
  EXPECT_TRUE(opened.store.ListFiles({.purpose = "other", .after = "", .limit = 9}).value().empty());
  EXPECT_TRUE(opened.store.ListFiles({.purpose = "", .after = "none", .limit = 9}).value().empty());
}

TEST(BatchStore, DeletesNoInputOfABatchThatHasNotEnded) {
  Opened opened;
  opened.Upload("in", "{}");
  BatchRecord batch = opened.Batch("b1", "in");
  EXPECT_EQ(opened.store.DeleteFile("in").value(), BatchStore::Deletion::kInUse);
  ASSERT_TRUE(opened.store.FailBatch(batch.number, "[]", 11).ok());
  EXPECT_EQ(opened.store.DeleteFile("in").value(), BatchStore::Deletion::kDone);
  EXPECT_EQ(opened.store.DeleteFile("in").value(), BatchStore::Deletion::kNotFound);
  EXPECT_FALSE(opened.store.OpenFile("in").ok());
  EXPECT_EQ(opened.store.AddBatch(batch).code(), StatusCode::kNotFound);
}

TEST(BatchStore, RecoverRemovesWhatNobodyKnowsAndNothingElse) {
  Opened opened;
  opened.Upload("known", "kept");
  AtomicFile half = opened.store.CreateFile("half").value();
  ASSERT_TRUE(half.Append("x").ok());
  AtomicFile unknown = opened.store.CreateFile("unknown").value();
  ASSERT_TRUE(unknown.Commit().ok());
  ASSERT_TRUE(opened.store.Recover().ok());
  EXPECT_THAT(ListFolder(opened.store.files_folder()).value(), ElementsAre("known"));
}

TEST(BatchStore, ALineHasOneAnswerWhateverIsAdded) {
  Opened opened;
  opened.Upload("in", "{}");
  const BatchRecord batch = opened.Batch("b1", "in");
  const int64_t number = batch.number;
  const std::vector<BatchLine> lines = {{.line = 1, .custom_id = "x"},
                                        {.line = 2, .custom_id = "y"},
                                        {.line = 4, .custom_id = "x"},
                                        {.line = 5, .custom_id = "z"}};
  const std::vector<BatchLine> again = opened.store.AddLines(number, lines).value();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].line, 4);
  ASSERT_TRUE(opened.store.StartBatch(number, 3, 12).ok());
  const LineAnswer two{.batch = number, .line = 2, .failed = true, .text = "first"};
  LineAnswer other = two;
  other.text = "second";
  other.failed = false;
  ASSERT_TRUE(opened.store.AddAnswers(std::vector{two}).ok());
  ASSERT_TRUE(
      opened.store.AddAnswers(std::vector{other, LineAnswer{.batch = number, .line = 5, .text = "third"}}).ok());
  const std::vector<BatchLine> left = opened.store.LinesToDo(number, 0, 9).value();
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].custom_id, "x");
  const BatchRecord now = opened.store.FindBatch("b1").value().value();
  EXPECT_EQ(now.total, 3);
  EXPECT_EQ(now.completed, 1);
  EXPECT_EQ(now.failed, 1);
  Statement rows = opened.store.Answers(number).value();
  std::string text;
  while (*rows.Step()) text += std::to_string(rows.Int64(0)) + (rows.IsNull(2) ? "-" : std::string(rows.Text(3))) + " ";
  EXPECT_EQ(text, "1- 2first 5third ");
}

TEST(BatchStore, AStatusIsLeftOnlyTheWayItMayBe) {
  Opened opened;
  opened.Upload("in", "{}");
  const int64_t number = opened.Batch("b1", "in").number;
  const auto now = [&] { return opened.store.FindBatch("b1").value().value(); };
  EXPECT_TRUE(opened.store.CancelBatch("b1", 11).value());
  EXPECT_FALSE(opened.store.CancelBatch("b1", 12).value());
  // Its validation ends later.
  ASSERT_TRUE(opened.store.StartBatch(number, 1, 13).ok());
  ASSERT_TRUE(opened.store.FailBatch(number, "[]", 13).ok());
  ASSERT_TRUE(opened.store.SetEnding(number, BatchStatus::kCompleted, 13).ok());
  EXPECT_EQ(now().status, BatchStatus::kCancelling);
  EXPECT_EQ(now().cancelling_at, 11);
  EXPECT_FALSE(now().ending.has_value());
  ASSERT_TRUE(opened.store.SetEnding(number, BatchStatus::kCancelled, 14).ok());
  ASSERT_TRUE(
      opened.store.EndBatch(now(), std::nullopt, FileRecord{.id = "e", .filename = "e", .purpose = "batch_output"}, 15)
          .ok());
  EXPECT_EQ(now().status, BatchStatus::kCancelled);
  EXPECT_EQ(now().cancelled_at, 15);
  EXPECT_EQ(now().error_file_id, "e");
  EXPECT_FALSE(now().output_file_id.has_value());
  EXPECT_TRUE(opened.store.OpenBatches().value().empty());
}

TEST(BatchStore, CleansUpAfterBatchesThatHaveEndedAlone) {
  Opened opened;
  opened.Upload("in", "{}");
  const int64_t ended = opened.Batch("b1", "in").number;
  const int64_t open = opened.Batch("b2", "in").number;
  std::vector<BatchLine> lines;
  std::vector<LineAnswer> answers;
  for (int64_t line = 1; line <= 500; ++line) {
    lines.push_back({.line = line, .custom_id = std::to_string(line)});
    answers.push_back({.batch = ended, .line = line, .text = "x"});
  }
  ASSERT_TRUE(opened.store.AddLines(ended, lines).value().empty());
  ASSERT_TRUE(opened.store.AddLines(open, lines).value().empty());
  ASSERT_TRUE(opened.store.AddAnswers(answers).ok());
  ASSERT_TRUE(opened.store.FailBatch(ended, "[]", 11).ok());
  int rounds = 0;
  while (*opened.store.CleanSome()) ++rounds;
  EXPECT_GT(rounds, 3);
  EXPECT_TRUE(opened.store.LinesToDo(ended, 0, 1).value().empty());
  EXPECT_EQ(opened.store.LinesToDo(open, 0, 1000).value().size(), 500u);
}

std::string Lines(const std::string& content) {
  const TestFolder folder;
  const File file = File::OpenRead(folder.Write("in", content)).value();
  BatchLineReader reader(file);
  std::string text;
  while (*reader.Next()) {
    EXPECT_EQ(content.substr(static_cast<size_t>(reader.offset()), static_cast<size_t>(reader.bytes())), reader.text());
    text += std::to_string(reader.line()) + ":" + std::to_string(reader.bytes()) + " ";
  }
  return text;
}

TEST(BatchInput, ReadsLinesWithAndWithoutALastLineEnd) {
  EXPECT_EQ(Lines(""), "");
  EXPECT_EQ(Lines("\n"), "1:0 ");
  EXPECT_EQ(Lines("a\n\nbc"), "1:1 2:0 3:2 ");
  EXPECT_EQ(Lines("a\n\nbc\n"), "1:1 2:0 3:2 ");
  // Across the blocks that are read.
  EXPECT_EQ(Lines(std::string(1 << 20, 'x') + "\n" + std::string(3 << 20, 'y') + "\nz"), "1:1048576 2:3145728 3:1 ");
}

TEST(BatchInput, SaysWhatIsWrongWithALine) {
  const auto error_of = [](const std::string& text) {
    BatchLineRequest request;
    BatchLineError error;
    if (ParseBatchLine(text, "/v1/completions", request, error)) return "fine " + request.custom_id;
    return error.code + " " + error.param;
  };
  EXPECT_EQ(error_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}})"), "fine a");
  EXPECT_EQ(error_of("{"), "invalid_json_line ");
  EXPECT_EQ(error_of("[]"), "invalid_json_line ");
  EXPECT_EQ(error_of("\xFF"), "invalid_json_line ");
  EXPECT_EQ(error_of(R"({"method": "POST", "url": "/v1/completions", "body": {}})"),
            "missing_required_parameter custom_id");
  EXPECT_EQ(error_of(R"({"custom_id": 1, "method": "POST", "url": "/v1/completions", "body": {}})"),
            "invalid_value custom_id");
  EXPECT_EQ(error_of(R"({"custom_id": ")" + std::string(513, 'x') + R"("})"), "invalid_value custom_id");
  EXPECT_EQ(error_of(R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})"),
            "invalid_value method");
  EXPECT_EQ(error_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/messages", "body": {}})"), "url_mismatch url");
  EXPECT_EQ(error_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})"),
            "missing_required_parameter body");
  EXPECT_EQ(error_of(R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": []})"),
            "invalid_value body");
}

}  // namespace
}  // namespace nunspark::server
