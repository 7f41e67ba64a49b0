#include "server/job_store.h"

#include <fstream>

#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark::server {
namespace {

TEST(JobStore, WhatAKilledProcessLeftBehindIsRemovedAndNothingElse) {
  const TestFolder folder;
  std::string id;
  {
    const auto store = JobStore::Open(folder.path());
    ASSERT_TRUE(store.ok()) << store.status().message();
    const auto files = (*store)->AddFiles({{.name = "a.txt", .content = "one"}});
    ASSERT_TRUE(files.ok()) << files.status().message();
    id = files->front().id;
  }
  std::ofstream(folder.Path("uploads/0123")) << "half";
  std::ofstream(folder.Path("uploads/" + id + ".tmp-1-0")) << "half";
  const auto store = JobStore::Open(folder.path());
  ASSERT_TRUE(store.ok()) << store.status().message();
  EXPECT_EQ(ListFolder(folder.Path("uploads")).value(), std::vector<std::string>{id});
  EXPECT_EQ((*store)->ReadUpload(id).value(), "one");
  EXPECT_EQ((*store)->FileName(id).value(), "a.txt");
  EXPECT_EQ((*store)->FileName("0123").status().code(), StatusCode::kNotFound);
}

TEST(JobStore, JobsThatItDoesNotUnderstandAreAnErrorThatNamesTheFile) {
  const TestFolder folder;
  {
    const auto store = JobStore::Open(folder.path());
    ASSERT_TRUE(store.ok());
    std::vector<Job> jobs(1);
    jobs[0].id = "j";
    jobs[0].request_id = "r";
    JobRequest request;
    request.model = "m";
    request.output_dir = "/o";
    request.file_ids = {"f"};
    jobs[0].request = std::make_shared<const JobRequest>(request);
    ASSERT_TRUE((*store)->AddJobs(jobs).ok());
    const auto loaded = (*store)->LoadJobs();
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EXPECT_EQ(loaded->front().request->model, "m");
  }
  {
    auto database = Database::Open(folder.Path("web.db"), std::vector<std::string_view>(1));
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->Run("UPDATE jobs SET status = 'odd'").ok());
  }
  const auto store = JobStore::Open(folder.path());
  ASSERT_TRUE(store.ok());
  const Status status = (*store)->LoadJobs().status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_NE(status.message().find("web.db"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("'odd'"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace nunspark::server
