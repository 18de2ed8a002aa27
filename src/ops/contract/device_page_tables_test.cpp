// Tests the copies of the requests' page tables on the device. Catches: copies that differ from the batch's tables;
// updates whose time grows with the tables' size instead of with the changes; unchecked entries that reach the device;
// a failed upload that is not repeated. The copies are compared with the batch's tables during a long random sequence
// of steps. At each step a table may grow, lose pages that have left the window, be absent, come back with as many or
// fewer entries, or give way to another request's table.
#include "tessera/ops/contract/device_page_tables.h"

#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "tessera/device/testing/fake_device.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kPages = 1000;

// A request as the engine keeps it. It owns its pages.
struct Owner {
  std::vector<PageId> pages;
  std::int64_t first_held = 0;
  PageTableNumber number = new_page_table_number();

  PageTable table() const { return {.pages = pages, .first_held = first_held, .number = number}; }
};

class DevicePageTablesTest : public ::testing::Test {
 protected:
  explicit DevicePageTablesTest(PlanLimits limits = {.max_requests = 8, .max_pages_per_request = 40, .page_size = 16})
      : limits_(limits), tables_(DevicePageTables::create(*device_, limits_, kPages).value()) {}

  Status update(const std::vector<PageTable>& batch) {
    return tables_.update(batch, std::vector<std::int32_t>(batch.size(), 1), *stream_);
  }
  // Reads a row from the CPU device's memory.
  std::vector<PageId> row(std::size_t b, std::size_t count) const {
    const std::int32_t* begin = tables_.data() + b * static_cast<std::size_t>(limits_.max_pages_per_request);
    std::vector<PageId> made;
    for (std::size_t i = 0; i < count; ++i) made.emplace_back(begin[i]);
    return made;
  }
  PageId draw() { return PageId(static_cast<std::int32_t>(1 + random_() % (kPages - 1))); }
  std::size_t below(std::size_t n) { return random_() % n; }

  std::unique_ptr<FakeDevice> device_ = FakeDevice::create({}, {.threads = 1}).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream("test").value();
  PlanLimits limits_;
  DevicePageTables tables_;
  std::mt19937 random_{1};
};

TEST_F(DevicePageTablesTest, MatchTheBatchAfterAnyHistory) {
  limits_.check_page_tables = true;  // also checks that the test changes tables only as PageTable allows
  DevicePageTables checked = DevicePageTables::create(*device_, limits_, kPages).value();
  std::vector<Owner> owners;
  for (int step = 0; step < 20000; ++step) {
    for (std::size_t i = owners.size(); i-- > 0;) {
      Owner& owner = owners[i];
      switch (below(12)) {
        case 0:  // the request's window moves on
          owner.first_held = std::min<std::int64_t>(owner.first_held + static_cast<std::int64_t>(below(4)),
                                                    std::ssize(owner.pages) - 1);
          std::fill_n(owner.pages.begin(), owner.first_held, PageId(0));
          break;
        case 1:  // the request is preempted and admitted again, sometimes with the same pages
          owner.number = new_page_table_number();
          if (below(2) == 0) std::ranges::generate(owner.pages, [&] { return draw(); }), owner.first_held = 0;
          break;
        case 2: std::swap(owner, owners[below(owners.size())]); break;
        case 3: owners.erase(owners.begin() + static_cast<std::ptrdiff_t>(i)); break;
        default:
          if (std::ssize(owner.pages) < limits_.max_pages_per_request) owner.pages.push_back(draw());
      }
    }
    while (owners.size() < below(9)) owners.push_back({.pages = {draw()}});
    // Not all requests are in every batch, and some pass fewer pages to the batch than they own.
    std::vector<PageTable> batch;
    for (const Owner& owner : owners) {
      if (below(8) == 0) continue;
      batch.push_back(owner.table());
      if (below(8) == 0) batch.back().pages = batch.back().pages.first(1 + below(owner.pages.size()));
      if (below(20) == 0) batch.back().number = {};
    }
    ASSERT_EQ(update(batch).message(), "");
    ASSERT_EQ(checked.update(batch, std::vector<std::int32_t>(batch.size(), 1), *stream_).message(), "");
    for (std::size_t b = 0; b < batch.size(); ++b)
      ASSERT_TRUE(std::ranges::equal(row(b, batch[b].pages.size()), batch[b].pages)) << "row " << b << " in " << step;
  }
}

class LargePageTablesTest : public DevicePageTablesTest {
 protected:
  static constexpr std::size_t kRequests = 256;
  static constexpr std::size_t kEntries = 8192 / 16;

  LargePageTablesTest()
      : DevicePageTablesTest({.max_requests = kRequests, .max_pages_per_request = 8192, .page_size = 16}),
        owners_(kRequests) {
    for (Owner& owner : owners_)
      for (std::size_t i = 0; i < kEntries; ++i) owner.pages.push_back(draw());
  }
  std::vector<PageTable> batch() const {
    std::vector<PageTable> made;
    for (const Owner& owner : owners_) made.push_back(owner.table());
    return made;
  }
  std::int64_t uploads(const std::vector<PageTable>& batch) {
    const std::int64_t before = device_->counts().calls;
    EXPECT_EQ(update(batch).message(), "");
    return device_->counts().calls - before;
  }

  std::vector<Owner> owners_;
};

// A row has 8192 entries, so changes in distant rows are uploaded separately (StepBuffer::kMaxGap).
TEST_F(LargePageTablesTest, UploadsOnlyWhatChanged) {
  EXPECT_EQ(uploads(batch()), 1);
  EXPECT_EQ(uploads(batch()), 0) << "nothing changed";
  for (const std::size_t b : {3u, 4u, 200u}) owners_[b].pages.push_back(draw());
  // Entries that the device already has are not read, so the test may overwrite them.
  std::vector<Owner> spoilt = owners_;
  for (Owner& owner : spoilt) std::fill_n(owner.pages.begin(), kEntries, PageId(-7));
  std::vector<PageTable> step;
  for (const Owner& owner : spoilt) step.push_back(owner.table());
  EXPECT_EQ(uploads(step), 2) << "rows 3 and 4 are neighbours, row 200 is far away";
  for (std::size_t b = 0; b < kRequests; ++b)
    ASSERT_EQ(row(b, owners_[b].pages.size()), owners_[b].pages) << "row " << b;
  owners_.erase(owners_.begin() + 254);
  EXPECT_EQ(uploads(batch()), 1) << "the last row has another request";
  EXPECT_EQ(row(254, kEntries), owners_[254].pages);
}

TEST_F(LargePageTablesTest, TakesTimeOnlyForWhatChanged) {
  ASSERT_EQ(uploads(batch()), 1);
  const auto seconds = [&](const std::vector<PageTable>& step) {
    double best = 1;
    for (int i = 0; i < 5; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      EXPECT_EQ(update(step).message(), "");
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best;
  };
  const double steady = seconds(batch());
  std::vector<PageTable> unknown = batch();
  for (PageTable& table : unknown) table.number = {};
  const double whole = seconds(unknown);
  RecordProperty("steady_us", std::to_string(steady * 1e6));
  EXPECT_LT(steady * 5, whole) << steady * 1e6 << " µs and " << whole * 1e6 << " µs";
}

TEST_F(DevicePageTablesTest, NewEntriesAreChecked) {
  Owner owner{.pages = {PageId(1), PageId(2)}};
  EXPECT_EQ(update({owner.table()}).message(), "");
  for (const std::int32_t bad : {-1, 1000}) {
    owner.pages.resize(2);
    owner.pages.emplace_back(bad);
    EXPECT_THAT(update({owner.table()}).to_string(),
                HasSubstr("internal error: request 0: page " + std::to_string(bad) + " is outside the cache's 1000"));
  }
  owner.pages[2] = PageId(999);
  EXPECT_EQ(update({owner.table()}).message(), "") << "a refused table changed nothing";
  EXPECT_EQ(row(0, 3), owner.pages);
}

TEST_F(DevicePageTablesTest, TheFullCheckRefusesAChangedTable) {
  limits_.check_page_tables = true;
  tables_ = DevicePageTables::create(*device_, limits_, kPages).value();
  const Owner owner{.pages = {PageId(0), PageId(2), PageId(3)}, .first_held = 1};
  EXPECT_EQ(update({owner.table()}).message(), "");
  Owner changed = owner;
  changed.pages[2] = PageId(4);
  EXPECT_THAT(update({changed.table()}).message(), HasSubstr("request 0: entry 2 was page 3 and is page 4"));
  changed = owner;
  changed.first_held = 2;
  EXPECT_THAT(update({changed.table()}).message(), HasSubstr("entry 1 is page 2, and the first 2 should be page 0"));
  changed.first_held = 0;
  EXPECT_THAT(update({changed.table()}).message(), HasSubstr("the first 1 entries were page 0, and now 0 are"));
}

TEST_F(DevicePageTablesTest, TheNextUpdateRepeatsAFailedUpload) {
  Owner first{.pages = {PageId(1), PageId(2)}};
  Owner second{.pages = {PageId(3)}};
  ASSERT_EQ(update({first.table(), second.table()}).message(), "");
  first.pages.emplace_back(5);
  device_->set_plan({.lost_from = 1});
  EXPECT_FALSE(update({first.table(), second.table()}).ok());
  device_->set_plan({});
  ASSERT_EQ(update({second.table()}).message(), "") << "a batch without the row that was not uploaded";
  ASSERT_EQ(update({second.table(), first.table()}).message(), "");
  EXPECT_EQ(row(0, 1), second.pages);
  EXPECT_EQ(row(1, 3), first.pages);
}

}  // namespace
}  // namespace tessera
