# A static program of Go, which makes system calls without a C library, works on files in parallel.
. "$DATA/lib.sh"
export CGO_ENABLED=0 GOCACHE="$CACHE/go" GOPATH="$SCRATCH/go" GOTOOLCHAIN=local GO111MODULE=off
go build -o files "$DATA/files.go"
mkdir tree
./files tree "$SCALE"
