# npm packs a package of many files and installs it from the archive, with its command.
. "$DATA/lib.sh"
modules=$((100 * SCALE))
mkdir -p package/lib project tree
for ((i = 0; i < modules; i++)); do echo "exports.value = $i;" > "package/lib/module$i.js"; done
cat > package/package.json <<'END'
{ "name": "conform-package", "version": "1.0.0", "main": "main.js", "bin": { "conform-sum": "main.js" } }
END
cat > package/main.js <<'END'
#!/usr/bin/env node
const { readdirSync } = require('fs');
const { join } = require('path');
const directory = join(__dirname, 'lib');
const values = readdirSync(directory).map((name) => require(join(directory, name)).value);
console.log(values.reduce((sum, value) => sum + value, 0));
END
echo '{ "name": "project", "version": "1.0.0", "private": true }' > project/package.json
npm() {
    command npm --cache "$PWD/../cache" --userconfig /dev/null --no-audit --no-fund \
        --no-update-notifier --offline --loglevel=error "$@"
}
cd package
npm pack --silent
cd ../project
npm install ../package/conform-package-1.0.0.tgz
expect 'the sum' "$(node_modules/.bin/conform-sum)" $((modules * (modules - 1) / 2))
npm ci
expect 'the sum after installing anew' "$(node_modules/.bin/conform-sum)" $((modules * (modules - 1) / 2))
# It has paths of the directory.
rm node_modules/.package-lock.json
mv node_modules package.json ../tree
