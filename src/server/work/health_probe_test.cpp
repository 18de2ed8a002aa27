// Catches: simultaneous health checks that each cost the engine a request; a health check that waits for a request that
// never ends; and a health check that is answered before its own probe has ended.
#include "tessera/server/work/health_probe.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>

#include "tessera/server/http/http_test_util.h"

namespace tessera {
namespace {

using testing::Client;
using testing::eventually;
using testing::get;
using testing::Reply;

// A server that treats every request as a health check. The test takes the place of the engine.
class Probes {
 public:
  Probes()
      : server_([this](HttpExchange exchange) {
          ++asked_;
          probe_->ask(Call(std::move(exchange), "/test", metrics_, /*logged=*/false));
        }) {
    probe_.emplace(/*generates=*/true, [this](Ticket ticket, const Request& request) {
      EXPECT_EQ(ticket, HealthProbe::kTicket);
      EXPECT_EQ(request.priority, kProbePriority);
      ++submitted_;
    });
  }

  Client ask() {
    const int before = asked_;
    Client client = server_.connect();
    client.send(get("/health_generate"));
    EXPECT_TRUE(eventually([&] { return asked_ == before + 1; }));
    return client;
  }
  void event(FinishReason finish, Ticket ticket = HealthProbe::kTicket) {
    server_.http->post([this, finish, ticket] {
      std::vector<EngineThread::Event> events(1);
      events[0] = {.ticket = ticket, .event = {.finish = finish}};
      if (finish == FinishReason::kError) events[0].event.error = device_lost("it is gone");
      probe_->dispatch(events);
    });
  }
  int submitted() const { return submitted_; }

 private:
  std::atomic<int> asked_ = 0;
  std::atomic<int> submitted_ = 0;
  ServerMetrics metrics_{MetricsStyle::kSglang, "demo"};
  std::optional<HealthProbe> probe_;
  testing::TestServer server_;
};

TEST(HealthProbe, SimultaneousCallsShareOneProbe) {
  Probes probes;
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(probes.ask());
  probes.event(FinishReason::kNone);
  probes.event(FinishReason::kLength, /*ticket=*/5);  // an event of another request
  probes.event(FinishReason::kLength);
  for (Client& client : clients) {
    const Reply reply = client.read_reply();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "");
  }
  EXPECT_EQ(probes.submitted(), 1);
}

TEST(HealthProbe, ACallAfterTheEndBeginsAnotherProbe) {
  Probes probes;
  for (int i = 1; i <= 2; ++i) {
    Client client = probes.ask();
    probes.event(FinishReason::kLength);
    EXPECT_EQ(client.read_reply().status, 200);
    EXPECT_EQ(probes.submitted(), i);
  }
}

TEST(HealthProbe, AnEngineErrorAnswersAllCalls) {
  Probes probes;
  Client one = probes.ask();
  Client other = probes.ask();
  probes.event(FinishReason::kError);
  EXPECT_EQ(one.read_reply().status, 503);
  EXPECT_EQ(other.read_reply().status, 503);
}

TEST(HealthProbe, TheProbeOutlivesItsFirstClient) {
  Probes probes;
  Client first = probes.ask();
  first.abort();
  Client second = probes.ask();
  probes.event(FinishReason::kLength);
  EXPECT_EQ(second.read_reply().status, 200);
  EXPECT_EQ(probes.submitted(), 1);
}

}  // namespace
}  // namespace tessera
