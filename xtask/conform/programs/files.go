// Work on files by many goroutines: command files DIRECTORY SCALE.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

func must(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "FAILED: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func pattern(worker, size int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("worker %d;", worker)), size/9+1)[:size]
}

// one works in a directory of its own and leaves `kept` and `link` there.
func one(root string, worker, rounds int) {
	dir := filepath.Join(root, strconv.Itoa(worker))
	must("mkdir", os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	for round := 0; round < rounds; round++ {
		content := pattern(worker, 1000+round*777)
		name := filepath.Join(dir, "a/b", strconv.Itoa(round))
		must("write", os.WriteFile(name, content, 0o644))
		_, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if !errors.Is(err, fs.ErrExist) {
			must("exclusive creation", fmt.Errorf("of what is there: %v", err))
		}
		file, err := os.OpenFile(name, os.O_RDWR, 0)
		must("open", err)
		_, err = file.WriteAt([]byte("here"), 500)
		must("write at", err)
		must("truncate", file.Truncate(int64(len(content)+100)))
		must("sync", file.Sync())
		copy(content[500:], "here")
		expected := append(content, make([]byte, 100)...)
		actual, err := io.ReadAll(file)
		must("read", err)
		if !bytes.Equal(actual, expected) {
			must("read", fmt.Errorf("%s has other bytes than were written", name))
		}
		mapped, err := syscall.Mmap(int(file.Fd()), 0, len(expected), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		must("map", err)
		mapped[0] = '#'
		must("unmap", syscall.Munmap(mapped))
		must("close", file.Close())
		must("rename", os.Rename(name, filepath.Join(dir, "kept")))
	}
	kept, err := os.ReadFile(filepath.Join(dir, "kept"))
	must("read", err)
	if kept[0] != '#' {
		must("mapped writing", fmt.Errorf("is not in the file"))
	}
	must("symlink", os.Symlink("kept", filepath.Join(dir, "link")))
	entries, err := os.ReadDir(filepath.Join(dir, "a/b"))
	must("list", err)
	if len(entries) != 0 {
		must("list", fmt.Errorf("%d names left", len(entries)))
	}
	must("remove", os.RemoveAll(filepath.Join(dir, "a")))
}

// shared counts in one file under a lock.
func shared(name string, times int) {
	for i := 0; i < times; i++ {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
		must("open shared", err)
		must("lock", syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
		text, err := io.ReadAll(file)
		must("read shared", err)
		number, _ := strconv.Atoi(string(text))
		_, err = file.WriteAt([]byte(strconv.Itoa(number+1)), 0)
		must("write shared", err)
		must("close shared", file.Close())
	}
}

func main() {
	root := os.Args[1]
	scale, err := strconv.Atoi(os.Args[2])
	must("scale", err)
	const workers = 16
	var all sync.WaitGroup
	for worker := 0; worker < workers; worker++ {
		all.Add(1)
		go func(worker int) {
			defer all.Done()
			one(root, worker, 10*scale)
			shared(filepath.Join(root, "counter"), 10*scale)
		}(worker)
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(root, "counter"))
	must("counter", err)
	if string(text) != strconv.Itoa(workers*10*scale) {
		must("counter", fmt.Errorf("%s, not %d: locks did not hold", text, workers*10*scale))
	}
	must("walk", filepath.WalkDir(root, func(_ string, _ fs.DirEntry, err error) error { return err }))
}
