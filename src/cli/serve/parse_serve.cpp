#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "tessera/cli/command_parser.h"
#include "tessera/engine/ranks/replica_choice.h"
#include "tessera/options/protocol_flags.h"
#include "tessera/options/values.h"
#include "tessera/server/events/load_endpoint.h"
#include "tessera/server/http/http_guard.h"

namespace tessera::cli {
namespace {

CommandFlags::Take appending_to(std::vector<std::string>& keys) {
  return [&keys](const std::string& flag, const std::string& text) {
    if (text.empty()) return invalid_argument(flag + ": the value is empty");
    keys.push_back(text);
    return ok_status();
  };
}

void add_tls_flags(CommandFlags& add, TlsOptions& tls) {
  add.text("--ssl-certfile", "FILE", "HTTPS with this certificate and those that lead to its authority, in PEM",
           tls.certificate_file);
  add.text("--ssl-keyfile", "FILE", "the certificate's key, in PEM (in --ssl-certfile)", tls.key_file);
  add.text("--ssl-keyfile-password", "TEXT", "of an encrypted key (TESSERA_SSL_KEYFILE_PASSWORD)", tls.key_password);
  add.keep_secret("TESSERA_SSL_KEYFILE_PASSWORD");
  add.text("--ssl-ca-certs", "FILE", "clients must show a certificate of these authorities, in PEM",
           tls.client_ca_file);
}

// Refuses TLS flags that would have no effect without a certificate.
Status check_tls_flags(const TlsOptions& tls) {
  if (!tls.certificate_file.empty()) return ok_status();
  for (const auto& [flag, value] :
       {std::pair("--ssl-keyfile", &tls.key_file), std::pair("--ssl-keyfile-password", &tls.key_password),
        std::pair("--ssl-ca-certs", &tls.client_ca_file)}) {
    if (!value->empty()) return invalid_argument(fmt::format("{} has no effect without --ssl-certfile", flag));
  }
  return ok_status();
}

class ServeParser final : public CommandParser {
 public:
  ServeParser(CommandFlags& add, CommonFlags& common) {
    HttpOptions& http = options_.server.http;
    add.group("Server");
    add.text("--host", "ADDRESS", "to listen on (127.0.0.1: this machine alone; 0.0.0.0: all)", http.host);
    add.value(
        "--port", "N", "to listen on (30000); 0: a free one",
        [&http](const auto& flag, const auto& text) {
          http.port = static_cast<std::uint16_t>(TRY(parse_integer(flag, text, {0, 65535})));
          return ok_status();
        },
        static_cast<int>(http.port));
    add.values("--api-key", "KEY", "clients must send it: Authorization: Bearer KEY; repeatable (TESSERA_API_KEY)",
               appending_to(options_.server.api_keys));
    add.keep_secret("--api-key-file or TESSERA_API_KEY");
    add.text("--api-key-file", "FILE", "keys, one a line; # begins a comment", options_.api_key_file);
    add.values("--admin-api-key", "KEY",
               "the administrative routes need it instead, and it opens all others; repeatable (TESSERA_ADMIN_API_KEY)",
               appending_to(options_.server.admin_api_keys));
    add.keep_secret("--admin-api-key-file or TESSERA_ADMIN_API_KEY");
    add.text("--admin-api-key-file", "FILE", "such keys, one a line; # begins a comment", options_.admin_api_key_file);
    add_tls_flags(add, http.tls);
    add.names("--allowed-hosts", "names in Host headers, beside localhost; *.NAME is all below it, * is all",
              http.allowed_hosts);
    add.values("--cors-allow-origins,--cors-origin", "ORIGIN", "web pages of this origin may ask; repeatable; * is all",
               [&http](const std::string& flag, const std::string& text) -> Status {
                 TRY(check_origin(text).with_context(flag));
                 http.cors_origins.push_back(text);
                 return ok_status();
               });
    add_protocol_flags(add, options_.server, options_.engine, protocol_);
    add.integer("--stream-interval", "tokens from one event of a stream to the next; the first comes at once (1)",
                {1, 1 << 20}, options_.server.stream_interval);
    add.value(
        "--metrics-style", "sglang|vllm", "whose names /metrics has (sglang)",
        [this](const std::string& flag, const std::string& text) {
          static constexpr std::array<std::string_view, 2> kNames = {"sglang", "vllm"};
          options_.server.metrics_style = kNames[TRY(parse_choice(flag, text, kNames))];
          return ok_status();
        },
        options_.server.metrics_style);
    add.integer("--dp-size,--data-parallel-size,--dp",
                "engines that share the requests, each on a GPU of its own from --device on (1)",
                {1, ReplicaChoice::kMostReplicas}, options_.replicas);
    add.flag("--enable-dp-attention",
             "each rank of --tp-size has requests of its own, and they share the experts; --dp-size is as many",
             dp_attention_);
    add.integer("--drain-timeout", "seconds that requests have to end once the server is told to stop (30)", {0, 86400},
                drain_s_);
    add.integer("--drain-notice", "seconds that it then goes on answering 503 at least, for balancers to notice (0)",
                {0, 86400}, notice_s_);
    add.integer("--timeout-keep-alive", "seconds that a connection may wait for its next request (75)", {1, 86400},
                keep_alive_s_);
    add.integer("--max-connections", "at a time; further ones are refused with 503 (4096)", {1, 1 << 20},
                max_connections_);
    add.value(
        "--request-memory-budget", "BYTES",
        "that requests may hold together: bodies, images, results; further ones are refused with 503 (a quarter of the "
        "machine's, or its container's, that is left)",
        [this](const std::string& flag, const std::string& text) {
          options_.server.request_memory_bytes = TRY(parse_bytes(flag, text));
          return ok_status();
        });
    add.integer("--max-stored-responses", "of /v1/responses; 0: none is stored (10000)", {0, 1 << 24},
                options_.server.stored_responses);
    add.value("--response-store-memory", "BYTES", "that stored responses may hold together (256M)",
              [this](const std::string& flag, const std::string& text) {
                options_.server.stored_response_bytes = TRY(parse_bytes(flag, text));
                return ok_status();
              });
    add.integer("--response-store-age", "seconds after which a stored response is forgotten (2592000, 30 days)",
                {1, std::int64_t{1} << 32}, response_age_s_);
    add.text("--file-storage-path", "DIR",
             "keeps the files and batches of /v1/files and /v1/batches here (none are kept)",
             options_.server.file_folder);
    add.value("--file-storage-size", "BYTES", "that all files together may have (16G)",
              [this](const std::string& flag, const std::string& text) {
                options_.server.file_bytes = TRY(parse_bytes(flag, text));
                return ok_status();
              });
    add.flag("--log-requests,--enable-log-requests", "one line each", options_.server.log_requests);
    add.text("--otlp-traces-endpoint", "URL",
             "an OpenTelemetry collector that gets a span for each request, as OTLP over HTTP",
             options_.server.traces.endpoint);
    add.text("--load-publish-endpoint", "ENDPOINT",
             "publishes each engine's load by ZeroMQ, as SGLang does: auto, or tcp://HOST:PORT; needs "
             "--kv-events-config",
             load_publish_endpoint_);
    add.text("--access-log", "FILE", "one line of JSON for each request is added to it; - is standard error",
             options_.server.access_log);
    add.group("");
    add.flag("--enable-metrics", "accepted: they are always there", enable_metrics_);
    add.flag("--enable-trace", "accepted: --otlp-traces-endpoint turns traces on", enable_trace_);
    add.flag("--disable-log-requests,--no-enable-log-requests", "accepted: they are not logged unless asked for",
             disable_log_requests_);
    common.serves = true;
    add_engine_flags(add, options_.engine, common);
    common.serves = false;  // `common` is shared with the parsers of other commands
  }

  EngineOptions* engine() override { return &options_.engine; }
  Result<Command> finish() override {
    for (const std::string& host : options_.server.http.allowed_hosts)
      TRY(check_allowed_host(host).with_context("--allowed-hosts"));
    TRY(check_tls_flags(options_.server.http.tls));
    if (dp_attention_) TRY(make_ranks_replicas());
    TRY(finish_protocol_flags(protocol_, options_.engine, options_.server));
    if (disable_log_requests_ && options_.server.log_requests)
      return invalid_argument("--disable-log-requests and --log-requests ask for opposites; accepted: one of them");
    if (!options_.server.traces.endpoint.empty())
      TRY(trace_url(options_.server.traces.endpoint).status().with_context("--otlp-traces-endpoint"));
    options_.server.kv_events.load_endpoint =
        TRY(load_endpoint(load_publish_endpoint_, options_.server.kv_events, static_cast<int>(options_.replicas))
                .with_context("--load-publish-endpoint"));
    if (enable_trace_ && options_.server.traces.endpoint.empty())
      return invalid_argument(
          "--enable-trace needs a collector; add --otlp-traces-endpoint http://HOST:4318/v1/traces");
    if (notice_s_ > drain_s_) {
      return invalid_argument(fmt::format(
          "--drain-notice: {} is more than --drain-timeout, {}, after which the server ends; accepted: 0 to {}",
          notice_s_, drain_s_, drain_s_));
    }
    options_.drain_s = static_cast<double>(drain_s_);
    options_.notice_s = static_cast<double>(notice_s_);
    options_.server.stored_response_age_s = static_cast<double>(response_age_s_);
    options_.server.http.keep_alive_timeout_s = static_cast<double>(keep_alive_s_);
    options_.server.http.max_connections = static_cast<std::size_t>(max_connections_);
    return Command(options_);
  }
  std::vector<std::string> warnings() const override {
    if (!dp_attention_ || options_.engine.dp_attention) return {};
    return {"--enable-dp-attention has no effect with --tp-size 1: there are no ranks to share experts with"};
  }

 private:
  // With DP attention, each of the N ranks serves requests of its own. This function turns these ranks into N engines.
  // Each engine has all weights of the model except the experts. The experts are divided among the engines.
  Status make_ranks_replicas() {
    EngineOptions& engine = options_.engine;
    if (options_.replicas != 1 && options_.replicas != engine.tp_size)
      return unimplemented(
          fmt::format("--enable-dp-attention: --dp-size {} with --tp-size {} is not supported yet; accepted is {}, as "
                      "every rank has requests of its own",
                      options_.replicas, engine.tp_size, engine.tp_size));
    if (engine.pp_size > 1)
      return unimplemented(
          fmt::format("--enable-dp-attention with --pp-size {} is not supported yet; 1 is accepted", engine.pp_size));
    options_.replicas = engine.tp_size;
    engine.replicas = engine.tp_size;
    engine.dp_attention = engine.tp_size > 1;
    engine.tp_size = 1;
    return ok_status();
  }

  bool dp_attention_ = false;
  ServeOptions options_;
  std::int64_t drain_s_ = 30;
  std::int64_t notice_s_ = 0;
  std::int64_t response_age_s_ = 30 * 86400;
  std::int64_t keep_alive_s_ = 75;
  std::int64_t max_connections_ = 4096;
  std::string load_publish_endpoint_;
  bool enable_metrics_ = false;
  bool enable_trace_ = false;
  bool disable_log_requests_ = false;
  ProtocolFlags protocol_;
};

}  // namespace

std::unique_ptr<CommandParser> make_serve_parser(CommandFlags& add, CommonFlags& common) {
  return std::make_unique<ServeParser>(add, common);
}

}  // namespace tessera::cli
