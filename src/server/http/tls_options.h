// The files from which a server takes its certificate, its key, and the authorities that must have signed its clients'
// certificates.
#pragma once

#include <string>

namespace tessera {

// All files are PEM files. They are read again when they change (tls.h).
struct TlsOptions {
  std::string certificate_file{};  // the chain of certificates, the server's own first; "": no TLS
  std::string key_file{};          // "": the key is in certificate_file
  std::string key_password{};      // password of an encrypted key
  std::string client_ca_file{};    // if set, every client must show a certificate that one of these authorities signed
  double check_interval_s = 5;     // time between two looks at the files; a change is seen at the next look
};

}  // namespace tessera
