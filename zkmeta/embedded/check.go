package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/kbroker/kbroker/internal/vfs"
)

// Check reads a directory's store without opening it: nil when it is whole or
// when there is none. A torn end, which the next Open cuts off, is no damage.
func Check(f vfs.FS, dir string) error {
	path := filepath.Join(dir, fileName)
	buf, err := vfs.ReadFile(f, path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, _, _, err = decodeFile(buf)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", fileName, err)
	}
	return nil
}
