#include "server/job_output.h"

#include <sys/stat.h>

#include <filesystem>

#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark::server {
namespace {

std::string Content(const std::string& path) {
  const Result<std::string> text = ReadRegularFile(path);
  return text.ok() ? *text : text.status().message();
}

// Checklist item 86.
TEST(JobOutput, ANameThatIsTakenGetsANumber) {
  const TestFolder folder;
  EXPECT_EQ(JobOutput::Create(folder.path(), "notes.txt")->path(), folder.Path("notes.txt.out.txt"));
  EXPECT_EQ(JobOutput::Create(folder.path(), "notes.txt")->path(), folder.Path("notes.txt.1.out.txt"));
  ASSERT_TRUE(WriteFileAtomically(folder.Path("notes.txt.2.meta.json"), "{}").ok());
  EXPECT_EQ(*FreeOutputPath(folder.path(), "notes.txt"), folder.Path("notes.txt.3.out.txt"));
  EXPECT_EQ(JobOutput::Create(folder.path(), "notes.txt")->path(), folder.Path("notes.txt.3.out.txt"));
  EXPECT_EQ(SidecarPath(folder.Path("notes.txt.1.out.txt")), folder.Path("notes.txt.1.meta.json"));
}

// Checklist item 87.
TEST(JobOutput, AFolderThatCannotBeUsedIsAnErrorThatNamesIt) {
  const TestFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.Path("file"), "").ok());
  for (const std::string& bad : {folder.Path("file"), folder.Path("file/below"), std::string("/proc/no/such")}) {
    const Result<JobOutput> output = JobOutput::Create(bad, "a");
    ASSERT_FALSE(output.ok());
    EXPECT_NE(output.status().message().find(bad), std::string::npos) << output.status().message();
  }
  EXPECT_TRUE(JobOutput::Create(folder.Path("new/below"), "a").ok());
}

TEST(JobOutput, AnOutputThatSomebodyTookAwayIsNotDone) {
  const TestFolder folder;
  for (const bool replaced : {false, true}) {
    Result<JobOutput> output = JobOutput::Create(folder.path(), "a");
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->Append("Once").ok());
    std::filesystem::remove(output->path());
    if (replaced) {
      ASSERT_TRUE(WriteFileAtomically(output->path(), "mine").ok());
    }
    EXPECT_NE(output->Finish().message().find(output->path() + " was removed"), std::string::npos);
    EXPECT_EQ(Content(output->path()) == "mine", replaced);
  }
}

TEST(JobOutput, ARunThatGoesOnComparesWhatIsThereAndAddsTheRest) {
  const TestFolder folder;
  std::string path;
  {
    Result<JobOutput> output = JobOutput::Create(folder.path(), "a");
    ASSERT_TRUE(output.ok());
    path = output->path();
    EXPECT_EQ(*output->Append("Once upon"), "Once upon");
  }
  Result<JobOutput> output = JobOutput::Resume(path, folder.path(), "a");
  ASSERT_TRUE(output.ok());
  EXPECT_EQ(output->earlier(), "Once upon");
  EXPECT_EQ(*output->Append("Once"), "");
  EXPECT_EQ(Content(path), "Once upon");
  EXPECT_EQ(*output->Append(" upon a"), " a");
  EXPECT_EQ(*output->Append(" time"), " time");
  ASSERT_TRUE(output->Finish().ok());
  EXPECT_EQ(output->path(), path);
  EXPECT_EQ(Content(path), "Once upon a time");
}

TEST(JobOutput, TextThatDiffersFromWhatIsThereNeverReplacesIt) {
  const TestFolder folder;
  const auto left = [&](const std::string& text) {
    Result<JobOutput> output = JobOutput::Create(folder.path(), "a");
    EXPECT_TRUE(output->Append(text).ok());
    return output->path();
  };
  const std::string edited = left("Once upon"), longer = left("Once upon a time, and more");
  Result<JobOutput> output = JobOutput::Resume(edited, folder.path(), "a");
  EXPECT_EQ(*output->Append("Once "), "");
  EXPECT_EQ(*output->Append("there"), "there");
  ASSERT_TRUE(output->Finish().ok());
  EXPECT_EQ(Content(edited), "Once upon");
  EXPECT_EQ(Content(output->path()), "Once there");
  EXPECT_NE(output->path(), edited);

  output = JobOutput::Resume(longer, folder.path(), "a");
  EXPECT_EQ(*output->Append("Once upon"), "");
  ASSERT_TRUE(output->Finish().ok());
  EXPECT_EQ(Content(longer), "Once upon a time, and more");
  EXPECT_EQ(Content(output->path()), "Once upon");
}

}  // namespace
}  // namespace nunspark::server
