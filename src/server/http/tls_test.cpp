// Catches: bytes that TLS loses or mixes up; clients that get in without a certificate; connections that are lost when
// a certificate is replaced; and a server that starts although its files cannot be used.
#include "tessera/server/http/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/server/http/tls_test_util.h"

namespace tessera::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Tls : public ::testing::Test {
 protected:
  Tls() { write(Identity("first")); }

  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  void write(const Identity& identity, const std::string& password = "") const {
    identity.write_key(path("key.pem"), password);
    identity.write_certificate(path("certificate.pem"));
  }
  TlsOptions files() const {
    return {.certificate_file = path("certificate.pem"), .key_file = path("key.pem"), .check_interval_s = 0.02};
  }
  static HttpOptions serving(const TlsOptions& tls) {
    HttpOptions options;
    options.tls = tls;
    return options;
  }
  static std::string error(const TlsOptions& tls) {
    const Result<std::unique_ptr<TlsContext>> made = TlsContext::create(tls);
    return made.ok() ? "none" : made.status().message();
  }

 private:
  test::ScratchDir folder_;
};

std::string get_and_close(const std::string& target) { return get(target, "Connection: close\r\n"); }

TEST_F(Tls, AnswersArriveByBothVersions) {
  const TestServer server(echo, serving(files()));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(server.port(), nullptr, version);
    ASSERT_TRUE(client.connected());
    EXPECT_EQ(client.server_name(), "first");
    EXPECT_TRUE(client.send(get("/one") + get_and_close("/two")));
    const std::string answers = client.read_through("");
    EXPECT_THAT(answers, AllOf(StartsWith("HTTP/1.1 200 OK"), HasSubstr("GET /one?"), EndsWith("GET /two? ")));
    EXPECT_TRUE(client.was_ended());
  }
  EXPECT_FALSE(TlsClient(server.port(), nullptr, TLS1_1_VERSION).connected());
}

TEST_F(Tls, LargeBodiesAndAnswersArriveWhole) {
  constexpr std::size_t kBytes = std::size_t{3} << 20;
  const TestServer server(echo, serving(files()));
  TlsClient client(server.port());
  std::string body;
  for (std::size_t i = 0; body.size() < kBytes; ++i) body += std::to_string(i);
  EXPECT_TRUE(client.send("POST /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
                          std::to_string(body.size()) + "\r\n\r\n" + body));
  EXPECT_TRUE(client.read_through("").ends_with("POST /a? " + body));
}

TEST_F(Tls, StreamsArriveAsTheyAreWritten) {
  Held held;
  const TestServer server(held.handler(/*stream=*/true), serving(files()));
  TlsClient client(server.port());
  client.send(get("/"));
  EXPECT_THAT(client.read_through("begun"), EndsWith("begun"));
  server.http->post([&] { held.exchanges[0].write("more"); });
  EXPECT_THAT(client.read_through("more"), EndsWith("more"));
  server.http->post([&] {
    held.exchanges[0].finish();
    held.exchanges.clear();
  });
  EXPECT_THAT(client.read_through("0\r\n\r\n"), EndsWith("0\r\n\r\n"));
}

TEST_F(Tls, AClientThatLeavesIsNoticed) {
  Held held;
  const TestServer server(held.handler(/*stream=*/true), serving(files()));
  {
    TlsClient client(server.port());
    client.send(get("/"));
    client.read_through("begun");
  }
  server.http->post([&] {
    for (int i = 0; i < 3; ++i) held.exchanges[0].write("more");
  });
  EXPECT_TRUE(eventually([&] { return held.gone == 1; }));
  server.http->post([&] { held.exchanges.clear(); });
}

TEST_F(Tls, PlainHttpIsToldToUseHttps) {
  const TestServer server(echo, serving(files()));
  const Reply reply = server.ask(get("/"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("this port speaks HTTPS"));
  Client garbage = server.connect();
  garbage.send("\x16\x03\x01garbage that is no handshake");
  garbage.end_writing();
  garbage.read_to_end();
  EXPECT_TRUE(TlsClient(server.port()).connected()) << "others go on";
}

TEST_F(Tls, ClientsWithoutACertificateStayOutside) {
  const Identity authority("authority");
  const Identity known("known", &authority);
  const Identity stranger("stranger");
  authority.write_certificate(path("authorities.pem"));
  TlsOptions tls = files();
  tls.client_ca_file = path("authorities.pem");
  const TestServer server(echo, serving(tls));
  // With TLS 1.3 a client learns of the refusal only at its first read.
  const auto answer = [&](const Identity* identity) {
    TlsClient client(server.port(), identity);
    client.send(get_and_close("/"));
    return client.read_through("");
  };
  EXPECT_THAT(answer(&known), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(answer(nullptr), "");
  EXPECT_EQ(answer(&stranger), "");
}

TEST_F(Tls, AReplacedCertificateIsUsedWithoutLosingConnections) {
  Held held;
  const TestServer server(held.handler(/*stream=*/true), serving(files()));
  TlsClient open(server.port());
  open.send(get("/"));
  open.read_through("begun");
  const auto name = [&] { return TlsClient(server.port()).server_name(); };
  EXPECT_EQ(name(), "first");
  // While only one of the two files is new, the files do not match, so the server keeps using the earlier ones.
  const Identity second("second");
  second.write_certificate(path("certificate.pem"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(name(), "first");
  second.write_key(path("key.pem"));
  EXPECT_TRUE(eventually([&] { return name() == "second"; }));
  std::filesystem::remove(path("key.pem"));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(name(), "second");
  server.http->post([&] {
    held.exchanges[0].write("still here");
    held.exchanges.clear();
  });
  EXPECT_THAT(open.read_through("still here"), EndsWith("still here"));
}

TEST_F(Tls, KeysMayBeEncryptedOrBesideTheCertificate) {
  const Identity identity("locked");
  write(identity, "open sesame");
  TlsOptions tls = files();
  EXPECT_THAT(error(tls), HasSubstr("key.pem is encrypted; --ssl-keyfile-password has its password"));
  tls.key_password = "wrong";
  EXPECT_THAT(error(tls), HasSubstr("--ssl-keyfile-password does not decrypt "));
  tls.key_password = "open sesame";
  EXPECT_EQ(error(tls), "none");
  identity.write_key(path("both.pem"));
  std::ofstream(path("both.pem"), std::ios::app) << std::ifstream(path("certificate.pem")).rdbuf();
  EXPECT_EQ(error({.certificate_file = path("both.pem")}), "none");
}

TEST_F(Tls, FilesThatCannotBeUsedAreNamed) {
  const auto with = [&](auto&& change) {
    TlsOptions tls = files();
    change(tls);
    return error(tls);
  };
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.certificate_file = path("none.pem"); }),
              AllOf(StartsWith("--ssl-certfile: "), HasSubstr("none.pem")));
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.key_file = path("none.pem"); }),
              AllOf(StartsWith("--ssl-keyfile: "), HasSubstr("none.pem")));
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.certificate_file = tls.key_file; }),
              AllOf(StartsWith("--ssl-certfile: "), HasSubstr("has no certificate in PEM")));
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.key_file = tls.certificate_file; }),
              AllOf(StartsWith("--ssl-keyfile: "), HasSubstr("has no private key in PEM")));
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.client_ca_file = tls.key_file; }),
              AllOf(StartsWith("--ssl-ca-certs: "), HasSubstr("has no certificate in PEM")));
  std::ofstream(path("cut.pem")) << "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.certificate_file = path("cut.pem"); }),
              HasSubstr("--ssl-certfile: certificate 1 of "));
  Identity("other").write_key(path("other.pem"));
  EXPECT_THAT(with([&](TlsOptions& tls) { tls.key_file = path("other.pem"); }),
              HasSubstr("other.pem is not the key of the certificate in "));
  write(Identity("old", nullptr, -7200, -3600));
  EXPECT_THAT(error(files()), ::testing::ContainsRegex("certificate.pem expired on 20..-..-.. ..:.. UTC"));
  write(Identity("early", nullptr, 3600, 7200));
  EXPECT_THAT(error(files()), HasSubstr("certificate.pem is not valid before 20"));
}

TEST_F(Tls, AServerWithWrongFilesDoesNotListen) {
  TlsOptions tls = files();
  tls.key_file = path("none.pem");
  HttpOptions options = serving(tls);
  options.port = 0;
  const Result<std::unique_ptr<HttpServer>> made = HttpServer::create(options, echo);
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.status().message(), StartsWith("--ssl-keyfile: "));
}

}  // namespace
}  // namespace tessera::testing
