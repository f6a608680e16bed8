package testenv

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// cacheDir is where downloads and prepared data directories are kept between test runs.
func cacheDir() string {
	base, err := os.UserCacheDir()
	if err != nil { // no home directory
		base = os.TempDir()
	}
	return filepath.Join(base, "idemq")
}

// cached returns the directory name in the cache, and makes it by build if it is not there. However many processes ask at the
// same time, one builds; a build that fails or is killed leaves no half directory under that name.
func cached(name string, build func(dir string) error) (string, error) {
	dir := filepath.Join(cacheDir(), name)
	if isDir(dir) {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := lockFile(lock); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if isDir(dir) {
		return dir, nil
	}
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", err
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", err
	}
	if err := build(part); err != nil {
		return "", err
	}
	return dir, os.Rename(part, dir)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// copyTree copies the directories and regular files of src to dst, for the owner's eyes only, and gives them to owner.
func copyTree(src, dst string, owner *account) error {
	return filepath.WalkDir(src, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(src, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dst, rel)
		switch {
		case entry.IsDir():
			err = os.MkdirAll(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			return nil
		}
		if err != nil {
			return err
		}
		return owner.chown(target)
	})
}

func copyFile(src, dst string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
