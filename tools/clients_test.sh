#!/usr/bin/env bash
# Runs real clients of the server's protocols, at pinned versions, against a server of the bundled model:
#   tools/clients_test.sh                   all of them; environments are kept in build/clients
#   tools/clients_test.sh --only openai     some of them
#   tools/clients_test.sh --record          also stores the clients' requests for tests/server/client_replay_test.py
# TESSERA=PROGRAM tests this program instead of build/tessera. A client that cannot be installed is skipped, with the
# reason. The last line is "N passed, N failed".
set -euo pipefail
cd "$(dirname "$0")/.."
exec tests/clients/clients_test.py "${TESSERA:-build/tessera}" build/clients "$@"
