#include "server/database.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/test_folder.h"

namespace nunspark::server {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kSchema[] = {
    "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, weight REAL);",
    "ALTER TABLE things ADD COLUMN note TEXT; CREATE INDEX things_note ON things (note);"};

Database OpenOrDie(const std::string& path, std::span<const std::string_view> schema = kSchema) {
  Result<Database> database = Database::Open(path, schema);
  if (!database.ok()) ADD_FAILURE() << database.status().message();
  return std::move(database).value();
}

int64_t Count(Database& database) {
  Result<Statement> rows = database.Query("SELECT count(*) FROM things");
  EXPECT_TRUE(rows.ok() && *rows->Step());
  return rows->Int64(0);
}

TEST(Database, GivesBackEveryTypeThatIsBound) {
  const TestFolder folder;
  Database database = OpenOrDie(folder.Path("test.db"));
  const std::string odd("a\0b'\"; DROP TABLE things; \xC3\xA4", 28);
  ASSERT_TRUE(database.Run("INSERT INTO things VALUES (?1, ?2, ?3, ?4)", INT64_MIN, odd, true, std::nullopt).ok());
  ASSERT_TRUE(database
                  .Run("INSERT INTO things VALUES (?1, ?2, ?3, ?4)", 7, std::string_view(), std::optional<int64_t>(),
                       std::optional<std::string>("note"))
                  .ok());
  EXPECT_EQ(database.changes(), 1);
  Result<Statement> rows = database.Query("SELECT id, name, weight, note FROM things ORDER BY id");
  ASSERT_TRUE(rows.ok());
  ASSERT_TRUE(*rows->Step());
  EXPECT_EQ(rows->Int64(0), INT64_MIN);
  EXPECT_EQ(rows->Text(1), odd);
  EXPECT_EQ(rows->Int64(2), 1);
  EXPECT_TRUE(rows->IsNull(3));
  EXPECT_EQ(rows->Text(3), "");
  ASSERT_TRUE(*rows->Step());
  EXPECT_EQ(rows->Text(1), "");
  EXPECT_FALSE(rows->IsNull(1));
  EXPECT_TRUE(rows->IsNull(2));
  EXPECT_EQ(rows->Text(3), "note");
  EXPECT_FALSE(*rows->Step());
}

TEST(Database, StatementsCanBeBoundAgainAlsoAfterAnError) {
  const TestFolder folder;
  Database database = OpenOrDie(folder.Path("test.db"));
  Result<Statement> insert = database.Prepare("INSERT INTO things (id, name) VALUES (?1, ?2)");
  ASSERT_TRUE(insert.ok());
  ASSERT_TRUE(insert->Bind(1, "one").ok() && insert->Finish().ok());
  ASSERT_TRUE(insert->Bind(2, "one").ok());
  const Status twice = insert->Finish();
  EXPECT_EQ(twice.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(twice.message(), AllOf(HasSubstr("test.db"), HasSubstr("things.name")));
  ASSERT_TRUE(insert->Bind(2, "two").ok());
  EXPECT_TRUE(insert->Finish().ok());
  EXPECT_EQ(Count(database), 2);
}

TEST(Database, KeepsWhatWasCommittedAndNothingElse) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  {
    Database database = OpenOrDie(path);
    {
      Result<Transaction> transaction = Transaction::Begin(database);
      ASSERT_TRUE(transaction.ok());
      ASSERT_TRUE(database.Run("INSERT INTO things (name) VALUES ('kept')").ok());
      ASSERT_TRUE(transaction->Commit().ok());
    }
    {
      Result<Transaction> transaction = Transaction::Begin(database);
      ASSERT_TRUE(transaction.ok());
      ASSERT_TRUE(database.Run("INSERT INTO things (name) VALUES ('lost')").ok());
      EXPECT_EQ(Count(database), 2);
    }
    EXPECT_EQ(Count(database), 1);
  }
  Database again = OpenOrDie(path);
  EXPECT_EQ(Count(again), 1);
}

TEST(Database, KeepsWhatAKilledProcessCommitted) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  const pid_t child = ::fork();
  if (child == 0) {
    Result<Database> database = Database::Open(path, kSchema);
    if (!database.ok() || !database->Run("INSERT INTO things (name) VALUES ('kept')").ok()) ::_exit(1);
    Result<Transaction> transaction = Transaction::Begin(*database);
    if (!transaction.ok() || !database->Run("INSERT INTO things (name) VALUES ('lost')").ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int how = 0;
  ASSERT_EQ(::waitpid(child, &how, 0), child);
  ASSERT_TRUE(WIFSIGNALED(how));
  Database database = OpenOrDie(path);
  EXPECT_EQ(Count(database), 1);
}

TEST(Database, IsForItsOwnerAlone) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  Database database = OpenOrDie(path);
  for (const char* const suffix : {"", "-wal", "-shm"}) {
    struct stat info = {};
    ASSERT_EQ(::stat((path + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600u) << suffix;
  }
}

TEST(Database, UpgradesAnOlderSchemaAndRefusesANewerOne) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  {
    Database old = OpenOrDie(path, std::span(kSchema).first(1));
    ASSERT_TRUE(old.Run("INSERT INTO things (name) VALUES ('old')").ok());
  }
  {
    Database current = OpenOrDie(path);
    EXPECT_TRUE(current.Run("UPDATE things SET note = 'new'").ok());
    EXPECT_EQ(current.changes(), 1);
  }
  const Status newer = Database::Open(path, std::span(kSchema).first(1)).status();
  EXPECT_EQ(newer.code(), StatusCode::kUnsupported);
  EXPECT_THAT(newer.message(), AllOf(HasSubstr(path), HasSubstr("found 2")));
}

TEST(Database, AnUpgradeThatFailsLeavesTheOldVersion) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  constexpr std::string_view kBroken[] = {kSchema[0], "DROP TABLE things; CREATE TABLE nonsense (;"};
  const Status status = Database::Open(path, kBroken).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(path));
  Database database = OpenOrDie(path);
  EXPECT_EQ(Count(database), 0);
}

TEST(Database, AFullDiskIsSaidAndTakesNothingAway) {
  const TestFolder folder;
  const std::string path = folder.Path("test.db");
  Database database = OpenOrDie(path);
  ASSERT_TRUE(database.Run("INSERT INTO things (name) VALUES ('kept')").ok());
  {
    Result<Statement> limit = database.Query("PRAGMA max_page_count = 16");
    ASSERT_TRUE(limit.ok() && limit->Finish().ok());
  }
  {
    Result<Transaction> transaction = Transaction::Begin(database);
    ASSERT_TRUE(transaction.ok());
    const Status full = database.Run("INSERT INTO things (name) VALUES (?1)", std::string(200000, 'x'));
    EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(full.message(), AllOf(HasSubstr(path), HasSubstr("no space")));
  }
  EXPECT_EQ(Count(database), 1);
  EXPECT_TRUE(database.Run("INSERT INTO things (name) VALUES ('more')").ok());
}

TEST(Database, NamesAFileThatIsNoneOrDamaged) {
  const TestFolder folder;
  const std::string other = folder.Write("other.db", std::string(8192, 'x'));
  const Status none = Database::Open(other, kSchema).status();
  EXPECT_EQ(none.code(), StatusCode::kDataLoss);
  EXPECT_THAT(none.message(), HasSubstr(other));

  const std::string path = folder.Path("test.db");
  {
    Database database = OpenOrDie(path);
    Result<Transaction> transaction = Transaction::Begin(database);
    ASSERT_TRUE(transaction.ok());
    for (int i = 0; i < 2000; ++i) {
      ASSERT_TRUE(database.Run("INSERT INTO things (name) VALUES (?1)", "name " + std::to_string(i)).ok());
    }
    ASSERT_TRUE(transaction->Commit().ok());
  }
  {
    Result<File> file = File::OpenWrite(path);
    ASSERT_TRUE(file.ok());
    const std::string garbage = RandomBytes(static_cast<size_t>(*file->Size()) - 4096, 1);
    ASSERT_TRUE(file->WriteAt(4096, {reinterpret_cast<const uint8_t*>(garbage.data()), garbage.size()}).ok());
  }
  Result<Database> database = Database::Open(path, kSchema);
  ASSERT_TRUE(database.ok()) << database.status().message();
  const Status damaged = database->Run("UPDATE things SET weight = 1");
  EXPECT_EQ(damaged.code(), StatusCode::kDataLoss);
  EXPECT_THAT(damaged.message(), AllOf(HasSubstr(path), HasSubstr("damaged")));
}

TEST(Database, SaysWhatIsNotThereAndWhatIsNoSql) {
  const TestFolder folder;
  const std::string nowhere = folder.Path("none/test.db");
  const Status missing = Database::Open(nowhere, kSchema).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(nowhere));
  Database database = OpenOrDie(folder.Path("test.db"));
  EXPECT_EQ(database.Run("SELEKT 1").code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace nunspark::server
