// Catches: disconnected clients that are not noticed; half-closed connections that count as disconnected; slow clients
// that hold memory; and leaks of file descriptors, callbacks and handles.
#include <atomic>
#include <new>
#include <vector>

#include "tessera/server/http/http_test_util.h"

namespace tessera::testing {
namespace {

TEST(HttpDisconnect, ClosingMidStreamIsNoticed) {
  Held held;
  TestServer server(held.handler(true));
  Client closing = server.connect();
  Client aborting = server.connect();
  closing.send(get("/"));
  aborting.send(get("/"));
  closing.read_through("begun");
  aborting.read_through("begun");
  aborting.abort();  // a reset is noticed without a write
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
  closing.close();  // looks as if the client had closed only one side, until a write fails
  EXPECT_TRUE(eventually([&] {
    server.http->post([&] {
      for (const HttpExchange& exchange : held.exchanges) exchange.write("more");
    });
    return held.gone == 2;
  }));
  // Handles of an ended exchange do nothing, and a callback that is set late is called at once.
  std::promise<bool> late;
  server.http->post([&] {
    bool called = false;
    held.exchanges[0].write("x");
    held.exchanges[0].finish();
    held.exchanges[0].respond({});
    held.exchanges[0].on_disconnect([&] { called = true; });
    late.set_value(called && held.exchanges[0].answered());
  });
  EXPECT_TRUE(late.get_future().get());
}

TEST(HttpDisconnect, ClosingBeforeTheAnswerIsNoticed) {
  Held held;
  TestServer server(held.handler(false));
  Client client = server.connect();
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.taken == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
}

TEST(HttpDisconnect, IsNotCalledAfterTheAnswer) {
  Held held;
  TestServer server([&](HttpExchange exchange) {
    held.hold(exchange);
    echo(exchange);
  });
  Client client = server.connect();
  EXPECT_EQ(client.ask(get("/")).status, 200);
  client.abort();
  EXPECT_EQ(server.ask(get("/")).status, 200);
  EXPECT_EQ(held.gone, 0);
}

TEST(HttpHalfClosed, GetsTheAnswer) {
  TestServer* running = nullptr;
  Held held;
  TestServer server([&](HttpExchange exchange) {
    held.hold(exchange);
    if (exchange.request().path == "/now") return echo(exchange);
    // Answers after the server has probed the connection.
    running->http->after(1.3, [exchange] {
      exchange.start_stream({.body = "begun,"});
      exchange.write("ended");
      exchange.finish();
    });
  });
  running = &server;
  Client late = server.connect();
  late.send(get("/late"));
  late.end_writing();
  Client now = server.connect();
  now.send(get("/now"));
  now.end_writing();
  EXPECT_EQ(now.read_reply().body, "GET /now? ");
  EXPECT_TRUE(now.at_end());
  EXPECT_EQ(late.read_reply().status, 100);
  EXPECT_EQ(late.read_reply().body, "begun,ended");
  EXPECT_TRUE(late.at_end());
  EXPECT_EQ(held.gone, 0);
}

TEST(HttpHalfClosed, AnUnfinishedRequestIsRefused) {
  TestServer server;
  Client client = server.connect();
  client.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
  client.end_writing();
  EXPECT_EQ(client.read_reply().status, 400);
  Client silent = server.connect();
  silent.end_writing();
  EXPECT_TRUE(silent.at_end());
}

TEST(HttpSlowReader, IsDroppedWhenItReadsNothing) {
  Held held;
  TestServer server(
      [&](HttpExchange exchange) {
        held.hold(exchange);
        exchange.start_stream({});
        exchange.write(std::string(32 << 20, 'a'));
      },
      {.write_timeout_s = 0.1, .max_unsent_bytes = 64 << 20});
  Client client = server.connect();
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
}

TEST(HttpSlowReader, IsServedWhileItReadsSomething) {
  constexpr std::size_t kBytes = 24 << 20;
  TestServer server([](HttpExchange exchange) { exchange.respond({.body = std::string(kBytes, 'a')}); },
                    {.write_timeout_s = 1.5});
  Client client(server.port(), "127.0.0.1", 256 * 1024);
  client.send(get("/"));
  const std::size_t head = client.read_through("\r\n\r\n").size();
  ASSERT_GT(head, 0u);
  // The 30 rounds take 30 · 60 ms = 1.8 s in all, which is longer than the timeout. They read at most 60 · 16 KiB.
  for (int i = 0; i < 30; ++i) {
    for (int reads = 0; reads < 2; ++reads) ASSERT_TRUE(client.receive());
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  std::string rest = client.read_through(std::string(1000, 'a'));
  while (rest.size() < kBytes && client.receive()) rest += client.read_through("a");
  EXPECT_EQ(server.ask(get("/")).body.size(), kBytes);
}

TEST(HttpSlowReader, IsDroppedWhenTooMuchIsUnsent) {
  constexpr std::size_t kLimit = 1 << 20;
  Held held;
  std::size_t written = 0;
  TestServer* running = nullptr;
  std::function<void(HttpExchange)> pour = [&](const HttpExchange& exchange) {
    if (held.gone > 0) return;
    exchange.write(std::string(64 * 1024, 'a'));
    written += 64 * 1024;
    running->http->after(0, [&, exchange] { pour(exchange); });
  };
  TestServer server(
      [&](HttpExchange exchange) {
        held.hold(exchange);
        exchange.start_stream({});
        pour(exchange);
      },
      {.max_unsent_bytes = kLimit});
  running = &server;
  Client client(server.port(), "127.0.0.1", 64 * 1024);
  client.send(get("/"));
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
  std::promise<std::size_t> total;
  server.http->post([&] { total.set_value(written); });
  // The kernel's socket buffers hold some additional bytes.
  const std::size_t poured = total.get_future().get();
  EXPECT_GT(poured, kLimit);
  EXPECT_LT(poured, kLimit + (16u << 20));
}

TEST(HttpStreams, ACallbackThatThrowsBreaksTheAnswerOff) {
  Held held;
  TestServer server([&](HttpExchange exchange) {
    held.hold(exchange);
    exchange.start_stream({.body = "begun"});
    exchange.on_sent([] { throw std::bad_alloc(); });
  });
  Client client = server.connect();
  client.send(get("/"));
  EXPECT_NE(client.read_through("begun"), "");
  EXPECT_EQ(client.read_to_end(), "\r\n") << "only the end of the first chunk";
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
}

TEST(HttpTasks, RunInOrderAndWhenDue) {
  TestServer server;
  std::string order;
  std::promise<void> done;
  server.http->post([&] {
    server.http->after(0.02, [&] {
      order += "d";
      done.set_value();
    });
    server.http->after(0, [&] { order += "c"; });
    order += "a";
  });
  server.http->post([&] { order += "b"; });
  done.get_future().get();
  EXPECT_EQ(order, "abcd");
}

// Every tenth of 400 clients with concurrent streams leaves midway. The others get all their text, and nothing leaks.
TEST(HttpStreams, ManyStreamsAtOnceLoseNoText) {
  constexpr int kClients = 400;
  constexpr int kWords = 20;
  std::atomic<int> gone{0};
  std::atomic<bool> all_have_left{false};
  const auto handle = std::make_shared<int>();
  TestServer* running = nullptr;
  std::function<void(HttpExchange, int)> speak = [&](const HttpExchange& exchange, int word) {
    if (word == kWords) return exchange.finish();
    const bool speaks = word == 0 || all_have_left;
    if (speaks) exchange.write(exchange.request().path + "#" + std::to_string(word) + " ");
    running->http->after(0.005, [&speak, exchange, next = speaks ? word + 1 : word] { speak(exchange, next); });
  };
  TestServer server([&](HttpExchange exchange) {
    exchange.on_disconnect([&gone, handle, exchange] { ++gone; });  // makes a reference cycle, like a careless handler
    exchange.start_stream({.content_type = "text/plain"});
    speak(exchange, 0);
  });
  running = &server;
  const std::ptrdiff_t before = count_open_files();
  {
    std::vector<Client> clients;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(server.connect());
      ASSERT_TRUE(clients.back().connected());
      clients.back().send(get("/" + std::to_string(i)));
    }
    for (std::size_t i = 0; i < kClients; i += 10) {
      clients[i].read_through("#0 ");
      clients[i].abort();
    }
    EXPECT_TRUE(eventually([&] { return gone == kClients / 10; }));
    all_have_left = true;
    for (std::size_t i = 0; i < kClients; ++i) {
      if (i % 10 == 0) continue;
      std::string expected;
      for (int word = 0; word < kWords; ++word) expected += "/" + std::to_string(i) + "#" + std::to_string(word) + " ";
      ASSERT_EQ(clients[i].read_reply().body, expected);
    }
  }
  EXPECT_TRUE(eventually([&] { return count_open_files() == before; })) << count_open_files() << " for " << before;
  EXPECT_TRUE(eventually([&] { return handle.use_count() == 1; })) << handle.use_count();
  EXPECT_EQ(gone, kClients / 10);
}

}  // namespace
}  // namespace tessera::testing
